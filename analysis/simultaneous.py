"""Bands for relative bias that hold over the whole sigma grid at once, per metric, block and arm."""

from collections.abc import Sequence

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


def relative_bias_bands(cells: Sequence[Moments], population: str) -> tuple[Bands, Bands]:
    """Lower and upper end of simultaneous 95 % bands of rho^2 over ``cells``, one Moments per sigma."""
    ratios = [_ratio(part) for part in cells]
    residuals = [scaled_difference(part.bias, part.baseline, ratio) for part, ratio in zip(cells, ratios, strict=True)]
    statistics = _images(cells, ratios) if population == "images" else _corpus(residuals)
    quantile = bootstrap.simultaneous_normal_quantile(statistics, estimate.CONFIDENCE)
    lower, upper = [], []
    for part, residual in zip(cells, residuals, strict=True):
        critical = bootstrap.student_from_normal(quantile, degrees_of_freedom(residual))
        ends = fieller.bounds(
            part.bias,
            part.baseline,
            critical,
            fieller.Growth(part.bias_curvature, part.baseline_curvature),
        )
        lower.append(ends[0])
        upper.append(ends[1])
    return np.stack(lower), np.stack(upper)


def _ratio(part: Moments) -> Float[np.ndarray, "*cells"]:
    """rho^2 where |mu0|^2 is positive, else NaN, which leaves the cell out of the curve."""
    baseline = part.baseline.value
    return np.where(baseline > 0.0, part.bias.value / np.where(baseline > 0.0, baseline, 1.0), np.nan)


def _images(cells: Sequence[Moments], ratios: Sequence[np.ndarray]) -> Float[np.ndarray, "sigma *cells resample"]:
    generator = np.random.default_rng(SEED)
    most = max(part.bias_gram.shape[-1] for part in cells)
    weights = bootstrap.multinomial_weights(generator, RESAMPLES, most)
    statistics = []
    for part, ratio in zip(cells, ratios, strict=True):
        n = part.bias_gram.shape[-1]
        residual = part.bias_gram - ratio[..., None, None] * part.baseline_gram
        statistics.append(bootstrap.resampled_u(residual, weights[:, :n]))
    return np.stack(statistics)


def _corpus(residuals: Sequence[Jackknifed]) -> Float[np.ndarray, "sigma *cells resample"]:
    generator = np.random.default_rng(SEED)
    most = max(residual.replicates.shape[-2] for residual in residuals)
    units = residuals[0].replicates.shape[-1]
    multipliers = generator.standard_normal((RESAMPLES, most, units))
    return np.stack(
        [bootstrap.multiplied(deviations(part), multipliers[:, : part.replicates.shape[-2]]) for part in residuals]
    )
