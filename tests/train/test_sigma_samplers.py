from math import exp

import numpy as np
import pytest
from diffusers.schedulers.scheduling_flow_match_euler_discrete import FlowMatchEulerDiscreteScheduler
from diffusers.training_utils import compute_density_for_timestep_sampling, compute_loss_weighting_for_sd3
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Generator, float64, from_numpy, linspace, rand

from analysis.errors import UsageError
from analysis.sigma_samplers import SMALLEST_SIGMA, SigmaSampler, parse
from analysis.sigma_samplers.mode import LARGEST_SCALE
from train.sigma_draws import draw_sigma_table, draw_sigmas
from train.step_uniforms import step_uniforms

DRAWS, SAMPLES = 100_000, 4
TOKENS = 1024
# The largest distance of an empirical from the true cumulative function, 1 % of the time (Kolmogorov).
KS = 1.63

SETTINGS = [
    "uniform",
    "sigmoid:1",
    "sigmoid:0.4",
    "logit-normal:0,1",
    "logit-normal:0.5,1.3",
    "mode",
    "mode:-0.8",
    "cosmap",
    "shift:3",
    "shift:0.3",
    "flux",
    "sigmoid:1+flux",
    "logit-normal:-1,0.5+shift:2",
    "mode:0.5@0.3",
    "cosmap+shift:3@0.2:0.7",
    "sigmoid:1+flux@0.1:0.9",
]


def drawn(text, steps=DRAWS // SAMPLES, seed=0):
    """1e5 draws [steps, samples]."""
    sampler = parse(text)
    tokens = np.full((steps, SAMPLES), TOKENS) if sampler.needs_tokens else None
    return draw_sigma_table(sampler, seed=seed, steps=range(steps), samples=SAMPLES, tokens=tokens)


def tokens_for(sampler, like):
    return np.full(like.shape, TOKENS) if sampler.needs_tokens else None


def logit_normal(mean, std):
    return lambda sigma: stats.norm.cdf(np.log(sigma / (1 - sigma)), loc=mean, scale=std)


def cosmap_by_integration(sigma):
    """The density that diffusers gives as a loss weight, integrated by the trapezoid rule."""
    grid = np.linspace(0, 1, 20_001)
    density = compute_loss_weighting_for_sd3("cosmap", from_numpy(grid)).numpy()
    area = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid))])
    return np.interp(sigma, grid, area)


@pytest.mark.parametrize(
    ("text", "cumulative"),
    [
        ("uniform", lambda sigma: sigma),
        ("sigmoid:1", logit_normal(0, 1)),
        ("sigmoid:0.4", logit_normal(0, 0.4)),
        ("logit-normal:0.5,1.3", logit_normal(0.5, 1.3)),
        ("cosmap", cosmap_by_integration),
        ("shift:3", lambda sigma: sigma / (3 - 2 * sigma)),
        ("sigmoid:1+shift:3", logit_normal(np.log(3), 1)),
        ("flux", lambda sigma: sigma / (sigma + exp(0.63) * (1 - sigma))),  # 0.5 + 0.65 (1024 - 256) / 3840
        ("sigmoid:2+flux", logit_normal(0.63, 2)),
    ],
)
def test_draws_follow_the_analytic_distribution(text, cumulative):
    assert stats.kstest(drawn(text).ravel(), cumulative).statistic < KS / DRAWS**0.5


def mode_of_the_paper(u, s):
    return 1 - u - s * (np.cos(np.pi * u / 2) ** 2 - 1 + u)


@pytest.mark.parametrize("s", [1.29, 0.5, -0.8, -1.0, LARGEST_SCALE])
def test_mode_follows_the_papers_formula_and_diffusers(s):
    sigma = drawn(f"mode:{s:.17g}").ravel()
    u = np.random.default_rng(1).random(4 * DRAWS)
    theirs = compute_density_for_timestep_sampling(
        "mode", 4 * DRAWS, mode_scale=s, generator=Generator().manual_seed(1)
    ).numpy()
    for reference in (mode_of_the_paper(u, s), theirs):
        assert stats.ks_2samp(sigma, reference, method="asymp").statistic < KS * (1.25 / DRAWS) ** 0.5


def test_cosmap_follows_the_papers_formula():
    u = np.random.default_rng(1).random(4 * DRAWS)
    reference = 1 - 1 / (np.tan(np.pi * u / 2) + 1)
    sigma = drawn("cosmap").ravel()
    assert stats.ks_2samp(sigma, reference, method="asymp").statistic < KS * (1.25 / DRAWS) ** 0.5


@pytest.mark.parametrize("tokens", [64, 256, 1024, 4096, 16384])
def test_flux_shifts_as_diffusers_does(tokens):
    slope = (1.15 - 0.5) / (4096 - 256)
    mu = tokens * slope + (0.5 - slope * 256)
    scheduler = FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    u = linspace(0.001, 1, 1000, dtype=float64)
    theirs = scheduler.time_shift(mu, 1.0, u).numpy()
    ours = parse("flux").quantile(u.numpy(), np.full(1000, tokens))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_logit_normal_is_diffusers_read_from_the_other_end():
    """Its scripts look the number up in a table of timesteps that starts at pure noise."""
    u = compute_density_for_timestep_sampling(
        "logit_normal", 4 * DRAWS, logit_mean=0.5, logit_std=1.3, generator=Generator().manual_seed(1)
    )
    timesteps = FlowMatchEulerDiscreteScheduler().timesteps[(u * 1000).long()].numpy()
    sigma = drawn("logit-normal:-0.5,1.3").ravel()
    # The table has 1,000 levels, each the upper end of its step.
    assert stats.ks_2samp(np.ceil(sigma * 1000), timesteps).statistic < KS * (1.25 / DRAWS) ** 0.5


@pytest.mark.parametrize(
    ("text", "more_noise_than"),
    [("logit-normal:1,1", "logit-normal:0,1"), ("shift:3", "uniform"), ("flux", "uniform"), ("uniform", "shift:0.3")],
)
def test_which_end_is_noise(text, more_noise_than):
    # The same u serves both, so every single draw moves.
    assert (drawn(text, 100) > drawn(more_noise_than, 100)).all()


@pytest.mark.parametrize("text", ["shift:3", "sigmoid:1+flux", "mode+shift:0.5"])
def test_a_range_is_cut_after_the_shift(text):
    cut, whole = drawn(f"{text}@0.2:0.6").ravel(), drawn(text, seed=1).ravel()
    assert cut.min() > 0.2
    assert cut.max() <= 0.6
    kept = whole[(whole > 0.2) & (whole <= 0.6)]
    assert stats.ks_2samp(cut, kept).statistic < KS * (1 / len(cut) + 1 / len(kept)) ** 0.5


@pytest.mark.parametrize("text", SETTINGS)
def test_the_cumulative_function_is_that_of_the_draws(text):
    sampler, sigma = parse(text), drawn(text, 2500)
    share = sampler.cumulative(sigma, tokens_for(sampler, sigma))
    assert stats.kstest(share.ravel(), "uniform").statistic < KS / sigma.size**0.5


@settings(max_examples=300)
@given(text=st.sampled_from(SETTINGS), u=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=1, max_size=5))
def test_quantile_and_cumulative_undo_each_other(text, u):
    sampler, u = parse(text), np.array(u)
    tokens = tokens_for(sampler, u)
    sigma = sampler.quantile(u, tokens)
    np.testing.assert_allclose(sampler.cumulative(sigma, tokens), u, atol=1e-9)
    np.testing.assert_allclose(sampler.quantile(sampler.cumulative(sigma, tokens), tokens), sigma, rtol=1e-9)


@pytest.mark.parametrize("scale", [-1.0, LARGEST_SCALE])
@given(sigma=st.floats(1e-6, 1))
def test_mode_at_the_ends_of_its_scales(scale, sigma):
    sampler = parse(f"mode:{scale:.17g}")
    np.testing.assert_allclose(sampler.quantile(sampler.cumulative(np.array([sigma]))), [sigma], rtol=1e-9)


@settings(max_examples=300)
@given(text=st.sampled_from(SETTINGS), u=st.lists(st.floats(0, 1, exclude_min=True), min_size=2, max_size=20))
def test_sigma_grows_with_u_and_stays_inside(text, u):
    sampler, ordered = parse(text), np.sort(u)
    sigma = sampler.quantile(ordered, tokens_for(sampler, ordered))
    assert (np.diff(sigma) >= -1e-15).all()
    assert (sigma > sampler.lo).all()
    assert (sigma >= min(SMALLEST_SIGMA, sampler.hi)).all()
    assert (sigma <= sampler.hi).all()


@pytest.mark.parametrize(
    "text", [*SETTINGS, "sigmoid:100", "logit-normal:-20,1", "mode:-1", "shift:1000", "shift:0.001"]
)
def test_the_open_ends(text):
    sampler = parse(text)
    ends = np.array([2.0**-53, 1.0])  # the smallest and the largest u that are drawn
    sigma = sampler.quantile(ends, tokens_for(sampler, ends))
    assert sampler.lo < sigma[0] < sigma[1] <= sampler.hi
    whole = np.array([sampler.lo, sampler.hi])
    assert sampler.cumulative(whole, tokens_for(sampler, whole)).tolist() == pytest.approx([0.0, 1.0], abs=1e-15)


@pytest.mark.parametrize("base", ["uniform", "sigmoid:1", "mode", "cosmap", "sigmoid:1+shift:3", "cosmap+shift:0.3"])
def test_rounding_does_not_leave_a_range(base):
    extreme = np.array([2.0**-53, 1 - 2.0**-53, 1.0])
    for edge in np.linspace(0.1, 0.9, 33).tolist():
        assert (parse(f"{base}@0.05:{edge!r}").quantile(extreme) <= edge).all()
        assert (parse(f"{base}@{edge!r}:0.95").quantile(extreme) > edge).all()


def test_a_distribution_wider_than_float64_keeps_its_mass_on_the_ends():
    sigma = drawn("sigmoid:100")
    assert sigma.min() == SMALLEST_SIGMA
    assert sigma.max() == 1
    share = stats.norm.cdf(np.log(SMALLEST_SIGMA) / 100)
    assert np.mean(sigma == SMALLEST_SIGMA) == pytest.approx(share, abs=0.01)
    assert np.mean(sigma == 1) == pytest.approx(share, abs=0.01)


@pytest.mark.parametrize("text", SETTINGS)
def test_one_step_and_many_agree_to_the_bit(text):
    sampler, table = parse(text), drawn(text, 3000)
    tokens = np.full(SAMPLES, TOKENS) if sampler.needs_tokens else None
    for step in (*range(0, 3000, 17), 1023, 1024, 2999):
        alone = draw_sigmas(sampler, seed=0, step=step, samples=SAMPLES, tokens=tokens)
        assert alone.tobytes() == table[step].tobytes()


def test_samplers_share_their_u_and_batches_their_samples():
    uniform = drawn("uniform", 50)
    # A draw is in [0, 1), a sigma in (0, 1].
    assert np.array_equal(uniform, 1 - step_uniforms(range(50), SAMPLES, seed=0, purpose="sigma"))
    np.testing.assert_allclose(parse("cosmap").cumulative(drawn("cosmap", 50)), uniform, rtol=1e-12)
    wide = draw_sigma_table(parse("uniform"), seed=0, steps=range(50), samples=2 * SAMPLES)
    assert np.array_equal(wide[:, :SAMPLES], uniform)
    assert not np.array_equal(drawn("uniform", 50, seed=1), uniform)


def test_sigma_of_a_batch_are_independent():
    correlation = np.corrcoef(drawn("uniform").T) - np.eye(SAMPLES)
    assert np.abs(correlation).max() < 5 / (DRAWS / SAMPLES) ** 0.5


def test_each_sample_is_shifted_by_its_own_tokens():
    sampler, tokens = parse("flux@0.1:0.9"), np.array([64, 256, 4096, 256])
    together = draw_sigmas(sampler, seed=0, step=3, samples=4, tokens=tokens)
    for i, own in enumerate(tokens):
        alone = draw_sigmas(sampler, seed=0, step=3, samples=4, tokens=np.full(4, own))
        assert alone[i] == together[i]
    assert len(set(together)) == 4
    with pytest.raises(ValueError, match="native grid"):
        draw_sigmas(sampler, seed=0, step=3, samples=4)


def test_defaults_and_other_spellings():
    assert parse("mode").base == parse("mode:1.29").base
    assert (
        parse("sigmoid").base == parse("sigmoid:1").base == parse("logit-normal").base == parse("logit-normal:0,1").base
    )
    assert parse(" shift:3 ") == SigmaSampler("shift:3", parse("uniform").base, 3.0)
    assert parse("uniform@0.5").lo == 0.5
    assert [parse(text).needs_tokens for text in ("uniform", "shift:3", "flux", "sigmoid:1+flux")] == [
        False,
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["known:", "uniform", "flux"]),
        ("gaussian", ["'gaussian'", "known:", "logit-normal"]),
        ("uniform:2", ["uniform", "'2'", "no number"]),
        ("cosmap:", ["cosmap", "no number"]),
        ("sigmoid:wide", ["'wide'", "sigmoid:scale"]),
        ("sigmoid:0", ["'0'", "0.01 <= scale <= 100"]),
        ("sigmoid:nan", ["'nan'"]),
        ("sigmoid:1,2", ["'1,2'", "sigmoid:scale"]),
        ("logit-normal:1", ["'1'", "mean,std"]),
        ("logit-normal:0,-1", ["'0,-1'", "0.01 <= std"]),
        ("mode:2", ["'2'", "-1 <= scale <= 1.7519"]),
        ("mode:-1.1", ["'-1.1'"]),
        ("shift", ["shift:s"]),
        ("shift:0", ["'0'", "0.001 <= s"]),
        ("shift:inf", ["'inf'"]),
        ("flux:3", ["'flux:3'", "known:"]),
        ("shift:3+flux", ["'shift:3+flux'", "known:"]),
        ("uniform+uniform", ["'uniform+uniform'"]),
        ("sigmoid:1+", ["'sigmoid:1+'"]),
        ("uniform+shift:2+shift:2", ["shift:2+shift:2"]),
        ("uniform@0.6:0.2", ["@0.6:0.2", "lo < hi"]),
        ("uniform@low", ["@low"]),
        ("uniform@nan", ["@nan"]),
        ("uniform@", ["@"]),
        ("sigmoid:0.1@0.9:0.95", ["@0.9:0.95", "widen"]),
        ("uniform@0.5:0.5000000001", ["@0.5:0.5000000001", "widen"]),
    ],
)
def test_a_bad_sampler_says_what_it_got_and_what_it_takes(text, names):
    with pytest.raises(UsageError) as caught:
        parse(text)
    message = str(caught.value)
    assert "\n" not in message
    for name in names:
        assert name in message


def test_an_empty_range_of_flux_is_found_when_its_grid_is_known():
    sampler = parse("sigmoid:0.1+flux@0.01:0.05")
    with pytest.raises(UsageError, match="widen the range"):
        sampler.quantile(rand(3, generator=Generator().manual_seed(0), dtype=float64).numpy(), np.full(3, TOKENS))


@given(st.text(alphabet="uniformsgdcahptlex:,+@.0123-", max_size=25))
def test_any_text_is_a_sampler_or_a_usage_error(text):
    said = ""
    try:
        assert isinstance(parse(text), SigmaSampler)
    except UsageError as error:
        said = str(error)
    assert "\n" not in said
