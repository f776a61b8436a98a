"""Fieller sets against a search of their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.base import fieller
from analysis.base.fieller import Growth
from analysis.base.jackknife import Jackknifed, scaled_difference, variance

SEEDS = st.integers(0, 2**32 - 1)


def figures(seed: int, numerator: float, noise: float) -> tuple[Jackknifed, Jackknifed]:
    """N and D with correlated replicates of 8 units."""
    generator = np.random.default_rng(seed)
    deviations = noise * generator.standard_normal((2, 1, 1, 8)) / 7
    deviations[0] += 0.5 * deviations[1]
    n, d = (
        Jackknifed(np.array([value]), value + part) for value, part in zip((numerator, 1.0), deviations, strict=True)
    )
    return n, d


def in_set(numerator: Jackknifed, denominator: Jackknifed, theta: np.ndarray, t: float, growth: Growth) -> np.ndarray:
    """The definition, for every theta."""
    contrast = scaled_difference(numerator, denominator, theta)
    spread, distance = variance(contrast), contrast.value
    n, d = numerator.value, denominator.value
    above, below = distance < 0, (distance > 0) & (theta > 0)
    spread = spread + np.where(above, growth.numerator * -distance, 0.0)
    spread = spread + np.where(below, theta * growth.denominator * distance, 0.0)
    if growth.noise_numerator:
        spread = spread + np.where(above, variance(numerator) * ((theta * d / n) ** 2 - 1.0), 0.0)
    if growth.noise_denominator:
        spread = spread + np.where(distance > 0, variance(denominator) * ((n / d) ** 2 - theta**2), 0.0)
    return distance**2 <= t**2 * spread


GROWTHS = (
    Growth(),
    Growth(0.2, 0.3),
    Growth(0.0, 0.5),
    Growth(noise_denominator=True),
    Growth(noise_numerator=True),
)


@pytest.mark.parametrize("growth", GROWTHS, ids=str)
@given(seed=SEEDS, numerator=st.floats(-0.5, 2.0), noise=st.floats(0.05, 0.6))
def test_bounds_are_the_ends_of_the_set(growth: Growth, seed: int, numerator: float, noise: float) -> None:
    n, d = figures(seed, numerator, noise)
    lower, upper = (end.item() for end in fieller.bounds(n, d, 2.0, growth))
    if np.isnan(lower) or (growth.noise_denominator and numerator <= 0.0):
        return
    theta = np.linspace(lower - 0.5 * (upper - lower) - 0.1, upper + 0.5 * (upper - lower) + 0.1, 801)
    # Within rounding of an end, membership is a matter of the last bit.
    clear = np.minimum(np.abs(theta - lower), np.abs(theta - upper)) > 1e-6 * (1 + np.abs(theta))
    inside = (theta > lower) & (theta < upper)
    assert (in_set(n, d, theta, 2.0, growth) == inside)[clear].all()


def test_a_noisy_denominator_is_unresolved() -> None:
    n, d = figures(0, 0.5, 0.2)
    wide = Jackknifed(d.value, d.value + 20 * (d.replicates - d.value))
    assert np.isnan(fieller.bounds(n, wide, 2.0)).all()
    negative = Jackknifed(-d.value, -d.replicates)
    assert np.isnan(fieller.bounds(n, negative, 2.0)).all()


def test_an_exact_ratio_is_known_however_noisy_its_denominator() -> None:
    _, d = figures(0, 0.5, 5.0)
    n = Jackknifed(0.05 * d.value, 0.05 * d.replicates)
    lower, upper = (end.item() for end in fieller.bounds(n, d, 2.0))
    assert lower == upper == pytest.approx(0.05, abs=1e-15)


def test_growth_only_widens() -> None:
    for seed in range(50):
        n, d = figures(seed, 0.3, 0.3)
        lower, upper = fieller.bounds(n, d, 2.0)
        wider_lower, wider_upper = fieller.bounds(n, d, 2.0, Growth(0.1, 0.1))
        assert wider_lower <= lower
        assert wider_upper >= upper
