from math import nextafter, sqrt

import numpy as np
import pytest
import torch
from diffusers.training_utils import compute_loss_weighting_for_sd3
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from train.objective import interpolate, squared_error, velocity_target
from train.weighting import Weighting, parse

SIGMAS = np.array([0.001, 0.02, 0.1, 0.3, 0.309, 0.31, 0.5, 0.77, 0.999, 1.0])


def test_none_weighs_every_sample_alike():
    weights = parse("none").weights(SIGMAS)
    assert weights.dtype == np.float32
    assert weights.tolist() == [1.0] * len(SIGMAS)


def test_sigma_sqrt_is_one_over_sigma_squared_as_in_diffusers():
    weights = parse("sigma-sqrt").weights(SIGMAS)
    assert weights.tolist() == [np.float32(1 / (sigma * sigma)) for sigma in SIGMAS.tolist()]
    theirs = compute_loss_weighting_for_sd3("sigma_sqrt", torch.from_numpy(SIGMAS))
    np.testing.assert_allclose(weights, theirs.numpy(), rtol=1e-7)


@pytest.mark.parametrize(
    ("text", "gamma"), [("min-snr", 5.0), ("min-snr:5", 5.0), ("min-snr:1", 1.0), ("min-snr:0.3", 0.3)]
)
def test_min_snr_is_the_clipped_signal_to_noise_ratio_on_the_clean_latents_error(text, gamma):
    weights = parse(text).weights(SIGMAS)
    assert weights.dtype == np.float32
    expected = [sigma**2 * min(((1 - sigma) / sigma) ** 2, gamma) for sigma in SIGMAS.tolist()]
    np.testing.assert_allclose(weights, np.float32(expected), rtol=2e-7)
    assert weights[-1] == 0


@given(sigma=st.floats(0.05, 0.95), gamma=st.floats(0.1, 20))
def test_min_snr_weighs_the_papers_losses_of_both_parametrisations(sigma, gamma):
    """arXiv:2303.09556 in its own terms: min(SNR, gamma) on x0, and min(SNR, gamma) / SNR on the noise."""
    random = torch.Generator().manual_seed(0)
    x0, noise, answer = (torch.randn(1, 3, 8, 8, generator=random, dtype=torch.float64) for _ in range(3))
    x_sigma = interpolate(x0, noise, torch.tensor([sigma], dtype=torch.float64))
    ours = (
        parse(f"min-snr:{gamma:.17g}").weights(np.array([sigma]))
        * squared_error(answer, velocity_target(x0, noise)).numpy()
    )
    snr = ((1 - sigma) / sigma) ** 2
    guessed_x0, guessed_noise = x_sigma - sigma * answer, x_sigma + (1 - sigma) * answer
    of_x0 = min(snr, gamma) * (guessed_x0 - x0).square().mean()
    of_noise = min(snr, gamma) / snr * (guessed_noise - noise).square().mean()
    np.testing.assert_allclose(ours, of_x0, rtol=1e-5)
    np.testing.assert_allclose(ours, of_noise, rtol=1e-5)


def test_min_snr_is_largest_where_the_ratio_reaches_gamma():
    sigmas = np.linspace(0.001, 1, 5000)
    best = sigmas[parse("min-snr:5").weights(sigmas).argmax()]
    assert best == pytest.approx(1 / (1 + sqrt(5)), abs=2e-4)


def test_min_snr_stays_finite_at_the_smallest_sigma():
    assert parse("min-snr:5").weights(np.array([2.0**-53, nextafter(0, 1)])).tolist() == pytest.approx(
        [5 * 2.0**-106, 0]
    )


def test_a_weight_beyond_float32_is_an_error_that_says_what_to_do():
    with pytest.raises(UsageError, match="cut the sampler's range"):
        parse("sigma-sqrt").weights(np.array([0.5, 1e-20]))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["known:", "sigma-sqrt"]),
        ("cosmap", ["'cosmap'", "known:"]),
        ("none:1", ["'none:1'", "known:"]),
        ("sigma-sqrt:2", ["known:"]),
        ("min-snr:", ["''", "min-snr:5"]),
        ("min-snr:many", ["'many'"]),
        ("min-snr:0", ["'0'", "above 0"]),
        ("min-snr:inf", ["'inf'"]),
        ("min-snr:nan", ["'nan'"]),
    ],
)
def test_a_bad_weighting_says_what_it_got_and_what_it_takes(text, names):
    with pytest.raises(UsageError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    for name in names:
        assert name in message


def test_a_weighting_keeps_its_name():
    assert [parse(text).text for text in ("none", " min-snr:3 ", "min-snr")] == ["none", "min-snr:3", "min-snr"]
    assert isinstance(parse("none"), Weighting)
