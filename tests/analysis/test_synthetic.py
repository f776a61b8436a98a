"""The generators keep what they plant."""

import numpy as np
import pytest

from analysis import synthetic
from analysis.schema import validate


@pytest.mark.parametrize("direction", synthetic.DIRECTIONS)
@pytest.mark.parametrize("tail", [0.0, 0.7])
def test_planted_moments_are_those_of_the_sample(direction: str, tail: float) -> None:
    values = synthetic.power_law(1.0, 12)
    world = synthetic.Planted(values, noise_scale=2.0, relative_bias=0.4, direction=direction, tail=tail)
    drawn = synthetic.sample(world, np.random.default_rng(0), repeats=3000, images=4, draws=3)
    noise = drawn.gradients[:, 0] - drawn.mean[:, None, None]
    assert np.linalg.norm(drawn.mean, axis=-1) == pytest.approx(np.ones(3000))
    assert np.linalg.norm(drawn.bias[:, 0], axis=-1) == pytest.approx(np.full(3000, 0.4))
    assert (noise**2).sum(-1).mean() == pytest.approx(2.0, rel=0.1 if tail else 0.03)
    within = drawn.gradients[:, 0].var(2, ddof=1).sum(-1).mean()
    assert within == pytest.approx(2.0 * 0.7, rel=0.1 if tail else 0.03)
    delta = drawn.gradients[:, 1] - drawn.gradients[:, 0] - drawn.bias[:, 0, None, None]
    assert np.abs(delta.mean((0, 1, 2))).max() < 0.02


def test_a_fixed_corpus_has_the_planted_bias_itself() -> None:
    world = synthetic.Planted(synthetic.power_law(1.0, 12), relative_bias=0.4, tail=0.7)
    drawn = synthetic.sample(world, np.random.default_rng(0), repeats=50, images=5, draws=2, fixed_corpus=True)
    assert drawn.image_bias.mean(2) == pytest.approx(drawn.bias)


@pytest.mark.parametrize("cross", [True, False])
def test_a_store_keeps_the_contract(cross: bool) -> None:
    data = synthetic.store(images=5, sigmas=(0.5, 1.0), metrics=("raw", "weight"), cross=cross)
    validate(data)
    assert ("gram_cross" in data) == cross
    assert data["gram_image"].sizes["metric"] == 2


def test_the_same_seed_gives_the_same_store_and_another_seed_another() -> None:
    first, again, other = (synthetic.store(images=4, sigmas=(0.5,), seed=seed) for seed in (1, 1, 2))
    assert first.identical(again)
    assert not first["gram_image"].equals(other["gram_image"])


def test_gram_arrays_are_plain_inner_products() -> None:
    samples = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    image, draw, cross = synthetic.gram_arrays(samples)
    means = samples.mean(2)
    for a, i, b, j in np.ndindex(2, 3, 2, 3):
        assert image[a, i, b, j] == pytest.approx(means[a, i] @ means[b, j])
    for i, a, d, b, e in np.ndindex(3, 2, 4, 2, 4):
        assert draw[i, a, d, b, e] == pytest.approx(samples[a, i, d] @ samples[b, i, e])
    for i, a, d, b in np.ndindex(3, 2, 4, 2):
        assert cross[i, a, d, b] == pytest.approx(samples[a, i, d] @ means[b].sum(0))


def test_the_kept_spectrum_of_the_mini_model_is_steep_and_of_sum_one() -> None:
    values = synthetic.mini_spectrum()
    assert values.shape == (64,)
    assert values.sum() == pytest.approx(1.0, abs=1e-6)
    assert (np.diff(values) <= 0).all()
    assert 3 * values[8] < values[0] < 0.5
