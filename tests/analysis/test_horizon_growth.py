"""The growth rate of jitters, on distances whose exponent is planted."""

import numpy as np
import pytest
from scipy import stats

from analysis.horizon.growth import Growth, growth
from analysis.horizon.report import growth_line

STEPS = (1, 2, 4, 8, 16, 32)


def grown(rates, *, size=1e-6, noise=0.0, seed=0):
    """Distances of eight jitters that grow by ``rates`` [seed], saturate at 1, beside a baseline of length 1."""
    rng = np.random.default_rng(seed)
    at = np.array(STEPS, float)
    logs = np.log(size) + np.asarray(rates)[:, None] * at
    distance = np.exp(logs[..., None] + noise * rng.standard_normal((len(rates), len(STEPS), 8)))
    return np.minimum(distance, 1.0), np.ones((len(rates), len(STEPS))), np.full((len(rates), len(STEPS)), 1e-9)


def test_growth_is_the_slope_of_the_mean_logarithm_with_its_error_over_jitters():
    exact = growth(*grown([0.2]), STEPS)
    assert exact.rate == pytest.approx(0.2)
    assert exact.error == pytest.approx(0, abs=1e-12)
    assert exact.lower is None
    noisy = [growth(*grown([0.2], noise=0.3, seed=seed), STEPS) for seed in range(300)]
    z = [(found.rate - 0.2) / found.error for found in noisy]
    assert np.mean(np.abs(z) < stats.t.ppf(0.975, 7)) == pytest.approx(0.95, abs=0.03)


def test_a_distance_that_was_once_saturated_is_not_looked_at_again():
    distance, moved, floor = grown([0.2])
    distance[:, 3] = 0.5  # step 8; at 16 it is small again
    assert growth(distance, moved, floor, STEPS).fitted == ((1, 4),)


def test_the_error_of_growth_is_that_of_a_mean_over_jitters_and_seeds():
    distance, moved, floor = grown([0.1, 0.15], noise=0.2, seed=3)
    slopes = np.array([[np.polyfit(STEPS, np.log(of_seed[:, j]), 1)[0] for j in range(8)] for of_seed in distance])
    found = growth(distance, moved, floor, STEPS)
    assert found.fitted == ((1, 32), (1, 32))
    assert found.rate == pytest.approx(slopes.mean())
    # The variance of each seed's mean over 8 jitters; the mean of two seeds has half the root of their sum.
    assert found.error == pytest.approx(np.sqrt((slopes.var(1, ddof=1) / 8).sum()) / 2)


def test_jitters_that_are_too_large_from_the_start_are_told_as_such():
    distance, moved, floor = grown([0.2])
    assert not growth(distance, moved, np.full_like(floor, 1.0), STEPS).too_large
    assert growth(distance, moved * 1e-6, floor, STEPS).too_large


def test_growth_over_seeds_has_an_interval_of_its_own():
    found = growth(*grown([0.1, 0.2, 0.3]), STEPS)
    half = stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert found.rate == pytest.approx(0.2)
    assert (found.lower, found.upper) == pytest.approx((0.2 - half, 0.2 + half))


def test_growth_looks_neither_at_the_floor_nor_at_saturation():
    distance, moved, floor = grown([0.5])
    # Saturated from step 32 on: the line ends before, where it would else be bent down.
    assert growth(distance, moved, floor, STEPS).fitted == ((1, 16),)
    assert growth(distance, moved, floor, STEPS).rate == pytest.approx(0.5)
    at_floor = growth(np.maximum(distance, 3e-6), moved, np.full_like(floor, 1e-6), STEPS)
    assert at_floor.fitted == ((8, 16),) or at_floor.fitted == (None,)
    none = growth(distance, moved, np.full_like(floor, 1.0), STEPS)
    assert (none.rate, none.fitted) == (None, (None,))


def test_rates_are_written_with_three_digits_however_small():
    shrinking = growth_line(growth(*grown([-2e-5, -3e-5]), STEPS), [0, 1])
    assert "jitters: -2.5e-05 +- " in shrinking
    assert "over seeds -8.85e-05 to 3.85e-05 (95 %)" in shrinking
    told = growth_line(Growth(0.21904, 0.00359, 0.1668, 0.2712, ((1, 32),)), [0])
    assert "jitters: 0.219 +- 0.0036 per step, over seeds 0.167 to 0.271 (95 %); the distance doubles in 3.2" in told
