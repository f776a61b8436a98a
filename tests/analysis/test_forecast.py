"""The forecast of images needed, against its own statistic and against more images."""

import numpy as np
import pytest
from scipy import stats

from analysis import forecast, moments, verdict
from analysis.base import spectrum
from analysis.synthetic import Planted, gram_arrays, power_law, sample


def test_units_needed_is_the_first_number_that_settles() -> None:
    value, spread, pairs = np.array([-0.4]), np.array([0.09]), np.array([0.05])
    needed = forecast.units_needed(value, spread, pairs, np.array([9.0]), 10).item()

    def settled(n: float) -> bool:
        variance = (0.09 - 0.05) * 10 / n + 0.05 * (10 / n) ** 2
        return stats.t.isf(0.025, n - 1) * np.sqrt(variance) < 0.4

    assert settled(needed)
    assert not settled(needed - 1)


def test_no_effect_is_never_settled() -> None:
    assert np.isnan(forecast.units_needed(np.zeros(1), np.ones(1), np.zeros(1), np.full(1, 9.0), 10)).all()


def decided(world: Planted, images: int, seed: int) -> tuple[np.ndarray, verdict.Verdict]:
    """(images needed, verdicts) of 400 repeats at margin 0.2; images needed is at least ``images``."""
    drawn = sample(world, np.random.default_rng(seed), repeats=400, images=images)
    image, draw, _ = gram_arrays(drawn.gradients)
    part = moments.images(image, draw, baseline=0, arms=[1])
    question = verdict.relative(part, 0.2)
    made = verdict.decide(question, part.baseline)
    spread = np.where(made.contrast.value < 0.0, made.variance_safe, made.variance_harmful)
    assert question.gram is not None
    pairs = spectrum.pair_variance(question.gram)
    return forecast.units_needed(made.contrast.value, spread, pairs, made.degrees, images), made


@pytest.mark.parametrize(
    ("rho", "difference", "expected"), [(0.0, 0.5, "safe"), (0.1, 0.3, "safe"), (0.4, 0.6, "harmful")]
)
def test_the_forecast_number_of_images_settles_about_half_of_the_verdicts(
    rho: float, difference: float, expected: str
) -> None:
    world = Planted(power_law(1.0, 40), noise_scale=2.0, difference=difference, relative_bias=rho)
    needed, few = decided(world, 8, seed=0)
    typical = int(np.nanmedian(needed))
    assert (few.verdict == expected).mean() < 0.2
    assert 0.35 < (decided(world, typical, seed=1)[1].verdict == expected).mean() < 0.65
    assert (decided(world, int(typical / 1.5), seed=1)[1].verdict == expected).mean() < 0.25
