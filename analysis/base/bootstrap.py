"""Bands that hold for a whole curve at once, from one set of resamples for every cell.

A bootstrap over images keeps a pair of one image with itself out, as the estimator does: with multinomial weights w,
U* = (w'Kw - sum w_i^2 K_ii) / (N^2 - sum w_i^2). Putting those pairs back is wrong by a factor.
"""

import numpy as np
from jaxtyping import Float
from scipy import special


def multinomial_weights(generator: np.random.Generator, resamples: int, n: int) -> Float[np.ndarray, "resample n"]:
    """How often each of n units is drawn in each resample of n; one of a single unit has no pair and is drawn anew."""
    weights = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples)
    while n > 1 and (alone := weights.max(-1) == n).any():
        weights[alone] = generator.multinomial(n, np.full(n, 1.0 / n), size=int(alone.sum()))
    return weights.astype(np.float64)


def resampled_u(
    gram: Float[np.ndarray, "*cells n n"], weights: Float[np.ndarray, "resample n"]
) -> Float[np.ndarray, "*cells resample"]:
    """U* of every resample: the mean of ``gram`` over its pairs of different units."""
    squares = weights**2
    full = ((weights @ gram) * weights).sum(-1)
    same = np.diagonal(gram, axis1=-2, axis2=-1) @ squares.T
    return (full - same) / (weights.sum(-1) ** 2 - squares.sum(-1))


def multiplied(
    deviations: Float[np.ndarray, "*cells stratum unit"], multipliers: Float[np.ndarray, "resample stratum unit"]
) -> Float[np.ndarray, "*cells resample"]:
    """Gaussian multiplier bootstrap of a stratified figure from its scaled jackknife deviations."""
    return np.tensordot(deviations, multipliers, axes=([-2, -1], [-2, -1]))


def simultaneous_normal_quantile(
    statistics: Float[np.ndarray, "curve *cells resample"], confidence: float
) -> Float[np.ndarray, "*cells"]:
    """Normal quantile z such that bands of +-z standard deviations hold for all of ``curve`` at once.

    Points whose statistics are NaN are left out of the curve; NaN if none is left.
    """
    centred = statistics - statistics.mean(-1, keepdims=True)
    spread = centred.std(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        standardised = np.abs(centred) / spread
    standardised = np.where(spread > 0.0, standardised, np.where(np.isnan(spread), -np.inf, 0.0))
    largest = standardised.max(0)
    single = float(special.ndtri(0.5 + confidence / 2))
    quantile = np.quantile(largest, confidence, axis=-1, method="inverted_cdf")
    return np.where(np.isneginf(quantile), np.nan, np.maximum(quantile, single))


def student_from_normal(
    quantile: Float[np.ndarray, "*cells"], degrees: Float[np.ndarray, "*cells"]
) -> Float[np.ndarray, "*cells"]:
    """Student's t with the same tail probability as a normal quantile."""
    return np.asarray(-special.stdtrit(degrees, special.ndtr(-quantile)))
