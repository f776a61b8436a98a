"""Bands for relative bias that hold over the whole sigma grid at once, per metric, block and arm.

curve = Curve("images", most_images=24)
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
    """One point per sigma, all under the same resamples; it keeps no Gram matrix of a point that was added."""

    def __init__(self, population: str, most_images: int):
        self._population = population
        self._most_images = most_images
        self._generator = np.random.default_rng(SEED)
        self._weights: np.ndarray | None = None
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
        if self._weights is None:
            self._weights = bootstrap.multinomial_weights(self._generator, RESAMPLES, self._most_images)
        residual = part.bias_gram - ratio[..., None, None] * part.baseline_gram
        return bootstrap.resampled_u(residual, self._weights[:, : residual.shape[-1]])

    def _corpus(self, residual: Jackknifed) -> Float[np.ndarray, "*cells resample"]:
        strata, units = residual.replicates.shape[-2:]
        if self._weights is None:
            self._weights = self._generator.standard_normal((RESAMPLES, self._most_images, units))
        return bootstrap.multiplied(deviations(residual), self._weights[:, :strata])
