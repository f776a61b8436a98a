"""The figures of a cell (Eq. 8 to 11) with their intervals, from its moments.

A figure is the ratio of two moments or a function of one; its interval is a Fieller set. NaN means unresolved: nothing
is clipped, and a figure whose set is unbounded is not reported.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from analysis.base import fieller
from analysis.base.fieller import Growth
from analysis.base.jackknife import Jackknifed, debiased, degrees_of_freedom, derive, scaled_difference, variance
from analysis.moments import Moments

CONFIDENCE = 0.95
"""Two-sided level of every interval."""


@dataclass(frozen=True)
class Figure:
    """A ratio N / D in every cell: estimate, standard error at it, and its two-sided 95 % interval."""

    numerator: Jackknifed
    denominator: Jackknifed
    value: Float[np.ndarray, "*cells"]
    standard_error: Float[np.ndarray, "*cells"]
    lower: Float[np.ndarray, "*cells"]
    upper: Float[np.ndarray, "*cells"]

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, lower, upper) of a monotone function of the figure, lower below upper."""
        with np.errstate(invalid="ignore"):
            ends = function(self.lower), function(self.upper)
        return function(self.value), np.minimum(*ends), np.maximum(*ends)


def ratio(numerator: Jackknifed, denominator: Jackknifed, growth: Growth = fieller.NONE) -> Figure:
    """N / D with its Fieller interval; the value is NaN with the interval."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = numerator.value / denominator.value
    residual = scaled_difference(numerator, denominator, np.nan_to_num(value))
    quantile = t_quantile(0.5 + CONFIDENCE / 2, residual)
    lower, upper = fieller.bounds(numerator, denominator, quantile, growth)
    unresolved = np.isnan(lower)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(variance(residual)) / denominator.value
    return Figure(
        numerator,
        denominator,
        np.where(unresolved, np.nan, value),
        np.where(unresolved, np.nan, error),
        lower,
        upper,
    )


def t_quantile(probability: float, figure: Jackknifed) -> Float[np.ndarray, "*cells"]:
    """Student's t at a figure's degrees of freedom."""
    return np.asarray(special.stdtrit(degrees_of_freedom(figure), probability))


def relative_bias_squared(moments: Moments) -> Figure:
    """rho^2 = |bias|^2 / |mu0|^2 (Eq. 9), its interval widened as its verdict is."""
    return ratio(
        moments.bias,
        moments.baseline,
        Growth(moments.bias_curvature, moments.baseline_curvature),
    )


def gain(moments: Moments) -> Figure:
    """gamma = <mu0, mu_t> / |mu0|^2 - 1 (Eq. 9)."""
    return ratio(derive(np.subtract, moments.mixed, moments.baseline), moments.baseline)


def norm_ratio_squared(moments: Moments) -> Figure:
    """r^2 = |mu_t|^2 / |mu0|^2 (Eq. 8)."""
    return ratio(moments.treated, moments.baseline)


def one_minus_cosine(moments: Moments) -> Figure:
    """1 - c (Eq. 8); near 0 it is half the squared turn, and so is its growth of variance."""
    return ratio(
        missing_product(moments),
        norm_product(moments),
        Growth(0.5 * moments.bias_curvature, moments.baseline_curvature),
    )


def missing_product(moments: Moments) -> Jackknifed:
    """|mu0||mu_t| - <mu0, mu_t>, free of bias to order 1/n."""
    return debiased(derive(np.subtract, norm_product(moments), moments.mixed))


def norm_product(moments: Moments) -> Jackknifed:
    """|mu0||mu_t|, NaN where either square is negative."""

    def product(baseline: np.ndarray, treated: np.ndarray) -> np.ndarray:
        return np.sqrt(np.where((baseline > 0) & (treated > 0), baseline * treated, np.nan))

    return derive(product, moments.baseline, moments.treated)


def turn_squared(moments: Moments) -> Figure:
    """tau^2 = rho^2 - gamma^2 = (|mu_t|^2 - <mu0, mu_t>^2 / |mu0|^2) / |mu0|^2 (Eq. 9)."""

    def across(baseline: np.ndarray, mixed: np.ndarray, treated: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return treated - mixed**2 / baseline

    return ratio(
        debiased(derive(across, moments.baseline, moments.mixed, moments.treated)),
        moments.baseline,
        Growth(moments.bias_curvature, moments.baseline_curvature),
    )


def noise_scale(moments: Moments) -> Figure:
    """S / |mu0|^2 of the baseline (Eq. 10)."""
    return ratio(moments.noise_baseline, moments.baseline, Growth(noise_numerator=True))


def bias_per_noise(moments: Moments) -> Figure:
    """1 / N* = |bias|^2 / S_t (Eq. 11): its interval is bounded even where N* is infinite."""
    return ratio(moments.bias, moments.noise_treated, Growth(moments.bias_curvature, noise_denominator=True))
