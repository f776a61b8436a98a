"""Moments against what is planted: no bias where figures are not linear, and the growth of variance."""

import numpy as np
import pytest

from analysis import estimate, moments
from analysis.synthetic import Planted, gram_arrays, power_law, sample

SPECTRUM = power_law(2.0, 24)


def test_the_turn_is_free_of_the_variance_of_the_gain() -> None:
    world = Planted(SPECTRUM, noise_scale=0.1, difference=0.7, relative_bias=0.1, direction="mixed")
    drawn = sample(world, np.random.default_rng(0), repeats=20000, images=8)
    image, draw, _ = gram_arrays(drawn.gradients)
    part = moments.images(image, draw, baseline=0, arms=[1])
    bias, mean = drawn.bias[:, 0], drawn.mean
    truth = (bias**2).sum(-1) - (bias * mean).sum(-1) ** 2
    error = estimate.turn_squared(part).numerator.value[:, 0] - truth
    uncorrected = (part.treated.value - part.mixed.value**2 / part.baseline.value)[:, 0] - truth
    assert abs(error.mean()) < 0.15 * abs(uncorrected.mean())
    half = estimate.missing_product(part).value[:, 0]
    treated = mean + bias
    missing = np.linalg.norm(treated, axis=-1) - (treated * mean).sum(-1)
    assert abs((half - missing).mean()) < 0.15 * abs(uncorrected.mean())


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_growth_of_variance_is_four_lambda_over_n(population: str) -> None:
    images, draws, fixed = 6, 5, population == "corpus"
    world = Planted(SPECTRUM, noise_scale=2.0, difference=0.3, correlation=0.0, between=0.0)
    drawn = sample(world, np.random.default_rng(0), repeats=4000, images=images, draws=draws, fixed_corpus=fixed)
    image, draw, cross = gram_arrays(drawn.gradients)
    if fixed:
        part = moments.corpus(image, draw, cross, baseline=0, arms=[1])
    else:
        part = moments.images(image, draw, baseline=0, arms=[1])
    # Noise of the mean over images and draws has trace S / (n D) along the same spectrum.
    along = (SPECTRUM**2).sum() / (images * draws)
    assert part.baseline_curvature.mean() == pytest.approx(4.0 * 2.0 * along, rel=0.25)
    assert part.bias_curvature.mean() == pytest.approx(4.0 * 0.09 * 2.0 * along, rel=0.25)


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_noise_and_squared_bias_per_image_are_those_planted(population: str) -> None:
    fixed = population == "corpus"
    world = Planted(power_law(0.0, 24), noise_scale=2.0, difference=0.3, relative_bias=0.3, between=0.4)
    drawn = sample(world, np.random.default_rng(0), repeats=4000, images=5, draws=4, fixed_corpus=fixed)
    image, draw, cross = gram_arrays(drawn.gradients)
    if fixed:
        part = moments.corpus(image, draw, cross, baseline=0, arms=[1])
    else:
        part = moments.images(image, draw, baseline=0, arms=[1])
    truth = 2.0 * (1.0 - world.between) if fixed else 2.0
    assert part.noise_baseline.value.mean() == pytest.approx(truth, rel=0.02)
    grown = 1.0 + 2.0 * world.difference * world.correlation + world.difference**2
    assert part.noise_treated.value.mean() == pytest.approx(truth * grown, rel=0.02)
    assert part.same_image is not None
    per_image = (drawn.image_bias**2).sum(-1).mean()
    assert part.same_image.value.mean() == pytest.approx(per_image, rel=0.02)
