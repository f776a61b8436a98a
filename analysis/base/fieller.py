"""Fieller sets: the values theta that a ratio N / D of two noisy figures may have.

    theta is kept when (N - theta D)^2 <= t^2 Var(N - theta D)

The variance may grow with the distance from the estimate (``Growth``, docs/method.md section 6), in the same way as
in a verdict, so that a bound and a verdict about it always agree. A set that is not an interval is unresolved: NaN.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from analysis.base.jackknife import Jackknifed, covariance, scaled_difference, variance

Bounds = tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]
PerCell = float | Float[np.ndarray, "*cells"]


@dataclass(frozen=True)
class Growth:
    """How the sampling variances of N and D would grow if N or D were larger than estimated.

    ``numerator``, ``denominator``              k_N, k_D: variance per unit of N or D
    ``noise_numerator``, ``noise_denominator``  N or D is a positive noise trace: its spread is in proportion to it
    ``spread``                                  N is a mean over images of positive figures: their squared coefficient
                                                of variation over n, which adds its share of the squared distance
    """

    numerator: PerCell = 0.0
    denominator: PerCell = 0.0
    noise_numerator: bool = False
    noise_denominator: bool = False
    spread: PerCell = 0.0


NONE = Growth()
"""Variances as estimated."""


def bounds(numerator: Jackknifed, denominator: Jackknifed, quantile: PerCell, growth: Growth = NONE) -> Bounds:
    """Lower and upper end of the set of ratios, both NaN where it is unbounded or D <= 0.

    ``quantile`` is t. The variance at theta is that of the jackknife plus k_N (theta D - N) above the estimate and
    theta k_D (N - theta D) between zero and the estimate; that of a noise trace is taken at the size that theta gives
    it, above (N) and below (D) the estimate. ``growth.spread`` is a verdict's alone.
    """
    n, d = numerator.value, denominator.value
    squared = np.asarray(quantile) ** 2
    n_variance, d_variance = variance(numerator), variance(denominator)
    mixed = covariance(numerator, denominator)
    leading = d**2 - squared * d_variance
    linear = 2.0 * (n * d - squared * mixed)
    constant = n**2 - squared * n_variance
    with np.errstate(divide="ignore", invalid="ignore"):
        estimate = n / d
        trace_variance = squared * n_variance * (1.0 / estimate**2) if growth.noise_numerator else 0.0 * n
        noise_variance = squared * d_variance * estimate**2 if growth.noise_denominator else 0.0 * n
    upper_shift = squared * growth.numerator
    upper_leading = leading - trace_variance
    upper_constant = constant + squared * n_variance * growth.noise_numerator
    _, upper = _roots(upper_leading, linear + upper_shift * d, upper_constant + upper_shift * n)
    lower_shift = squared * growth.denominator
    lower_leading = leading + squared * d_variance * growth.noise_denominator
    lower_constant = constant - noise_variance
    plain, _ = _roots(lower_leading, linear, lower_constant)
    curved, _ = _roots(lower_leading + lower_shift * d, linear + lower_shift * n, lower_constant)
    lower = np.where(curved > 0.0, curved, plain)
    bounded = (leading > 0.0) & (upper_leading > 0.0) & (d > 0.0) & np.isfinite(n_variance) & np.isfinite(d_variance)
    # Rounding must not push a bound past the estimate, which is in the set by definition.
    lower, upper = np.minimum(lower, estimate), np.maximum(upper, estimate)
    exact = _is_exact(numerator, denominator)
    lower, upper = np.where(exact, estimate, lower), np.where(exact, estimate, upper)
    return np.where(bounded | exact, lower, np.nan), np.where(bounded | exact, upper, np.nan)


def _is_exact(numerator: Jackknifed, denominator: Jackknifed) -> Bool[np.ndarray, "*cells"]:
    """Whether N / D is known to 7 digits although D is noisy: N is the same multiple of D in every replicate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = scaled_difference(numerator, denominator, numerator.value / denominator.value)
        return (denominator.value > 0.0) & (variance(residual) <= 1e-14 * denominator.value**2)


def _roots(leading: np.ndarray, linear: np.ndarray, constant: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both roots of a x^2 - b x + c, smaller first for a > 0; a negative discriminant is rounding and counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(linear**2 - 4.0 * leading * constant, 0.0))
        return (linear - root) / (2.0 * leading), (linear + root) / (2.0 * leading)
