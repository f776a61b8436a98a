"""Squared sizes in a mark's unit, with their Fieller intervals (Eq. 23 to 25 of docs/method.md)."""

import numpy as np
from jaxtyping import Float

from analysis import estimate
from analysis.base import ustatistic
from analysis.base.fieller import Growth
from analysis.base.jackknife import Jackknifed
from analysis.estimate import Figure
from analysis.moments import GramDraw, Moments


def times_squared(moments: Moments, arm: int, mark: int) -> Figure:
    """|bias|^2 over that of a mark (Eq. 23), the same units left out of both; cells without the arm axis.

    Unresolved where the mark's own bias is not told from zero.
    """
    growth = Growth(moments.bias_curvature[..., arm], moments.bias_curvature[..., mark])
    return estimate.ratio(_of(moments.bias, arm), _of(moments.bias, mark), growth)


def gain_squared(moments: Moments, arm: int) -> Figure:
    """rho^2: the square of the gain whose bias is as long (Eq. 24). It needs no arm that is a gain."""
    growth = Growth(moments.bias_curvature[..., arm], moments.baseline_curvature[..., arm])
    return estimate.ratio(_of(moments.bias, arm), _of(moments.baseline, arm), growth)


def jitter_squared(gram_draw: GramDraw, baseline: int, arm: int, *, population: str) -> Figure:
    """E|g_t - g_0|^2 / E|g_0|^2 of single gradients: the square of the jitter that changes one as much (Eq. 25).

    It needs no arm that is a jitter, which has no bias to be measured by: each gradient's is drawn anew.
    """
    native = gram_draw[..., baseline, :, baseline, :]
    cross = gram_draw[..., baseline, :, arm, :]
    change = gram_draw[..., arm, :, arm, :] - cross - cross.swapaxes(-1, -2) + native
    # Means of positive figures: where one is small by chance, so is its spread.
    growth = Growth(noise_numerator=True, noise_denominator=True)
    return estimate.ratio(_mean_square(change, population), _mean_square(native, population), growth)


def _mean_square(draw: Float[np.ndarray, "*cells n draw draw"], population: str) -> Jackknifed:
    """Mean over images and draws of a single gradient's square."""
    if population == "corpus":
        return ustatistic.mean_square_over_draws(draw)
    return ustatistic.mean_over_images(np.diagonal(draw, axis1=-2, axis2=-1).mean(-1))


def _of(figure: Jackknifed, arm: int) -> Jackknifed:
    return Jackknifed(figure.value[..., arm], figure.replicates[..., arm, :, :])
