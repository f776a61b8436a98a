"""Bands for relative bias that hold over the whole sigma grid at once, per metric, block and arm.

curve = Curve("images")
for moments in cells:
    curve.add(moments)
lower, upper = curve.bands()
"""

import numpy as np
from jaxtyping import Float

from analysis import estimate
from analysis.base import bootstrap, fieller
from analysis.base.jackknife import Jackknifed, degrees_of_freedom, deviations, scaled_difference
from analysis.moments import Moments

RESAMPLES = 1000
SEED = 20250101
"""Fixed: the same store gives the same band."""

Bands = Float[np.ndarray, "sigma *cells"]


class Curve:
    """One point per sigma, all of as many images under the same resamples; it keeps no Gram matrix of one added."""

    def __init__(self, population: str):
        self._population = population
        self._generator = np.random.default_rng(SEED)
        self._weights: dict[int, np.ndarray] = {}
        self._points: list[tuple[Jackknifed, Jackknifed, fieller.Growth, np.ndarray]] = []
        self._statistics: list[np.ndarray] = []

    def add(self, part: Moments) -> None:
        """The next sigma of the curve."""
        baseline = part.baseline.value
        # NaN where there is no ratio leaves the point out of the curve.
        ratio = np.where(baseline > 0.0, part.bias.value / np.where(baseline > 0.0, baseline, 1.0), np.nan)
        residual = scaled_difference(part.bias, part.baseline, ratio)
        drawn = self._images(part, ratio) if self._population == "images" else self._corpus(residual)
        self._statistics.append(drawn)
        growth = fieller.Growth(part.bias_curvature, part.baseline_curvature)
        self._points.append((part.bias, part.baseline, growth, degrees_of_freedom(residual)))

    def bands(self) -> tuple[Bands, Bands]:
        """Lower and upper end of simultaneous 95 % bands of rho^2, NaN where a point is unresolved."""
        quantile = bootstrap.simultaneous_normal_quantile(np.stack(self._statistics), estimate.CONFIDENCE)
        ends = []
        for bias, baseline, growth, degrees in self._points:
            critical = bootstrap.student_from_normal(quantile, degrees)
            ends.append(fieller.bounds(bias, baseline, critical, growth))
        return np.stack([lower for lower, _ in ends]), np.stack([upper for _, upper in ends])

    def _images(self, part: Moments, ratio: Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells resample"]:
        residual = part.bias_gram - ratio[..., None, None] * part.baseline_gram
        n = residual.shape[-1]
        if n not in self._weights:
            self._weights[n] = bootstrap.multinomial_weights(self._generator, RESAMPLES, n)
        return bootstrap.resampled_u(residual, self._weights[n])

    def _corpus(self, residual: Jackknifed) -> Float[np.ndarray, "*cells resample"]:
        strata, units = residual.replicates.shape[-2:]
        if strata not in self._weights:
            self._weights[strata] = self._generator.standard_normal((RESAMPLES, strata, units))
        return bootstrap.multiplied(deviations(residual), self._weights[strata])
