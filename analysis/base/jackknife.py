"""Delete-one replicates of a figure, stratified, and the variance that they give.

    quotient = derive(np.divide, numerator, denominator)
    error = np.sqrt(variance(quotient))

Both populations fit: for images like these there is one stratum whose units are the images; for exactly this
corpus every image is a stratum whose units are its draws. So one Fieller set serves both.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class Jackknifed:
    """A figure with its delete-one replicates.

    ``value`` [*cells]; ``replicates`` [*cells, stratum, unit], the figure with that unit left out.
    """

    value: Float[np.ndarray, "*cells"]
    replicates: Float[np.ndarray, "*cells stratum unit"]

    def __getitem__(self, cell: tuple[slice | int | None, ...]) -> "Jackknifed":
        """Index the cell axes of both arrays; ``cell`` must name every one of them or start from the left."""
        return Jackknifed(self.value[cell], self.replicates[cell])


def derive(function: Callable[..., np.ndarray], *figures: Jackknifed) -> Jackknifed:
    """A function of figures, evaluated on the values and on every replicate."""
    value = function(*(figure.value for figure in figures))
    return Jackknifed(np.asarray(value), function(*(figure.replicates for figure in figures)))


def scaled_difference(
    numerator: Jackknifed, denominator: Jackknifed, ratio: float | Float[np.ndarray, "*cells"]
) -> Jackknifed:
    """N - theta D, the linear figure behind the question whether N / D is theta."""
    theta = np.asarray(ratio)
    return Jackknifed(
        numerator.value - theta * denominator.value,
        numerator.replicates - theta[..., None, None] * denominator.replicates,
    )


def deviations(figure: Jackknifed) -> Float[np.ndarray, "*cells stratum unit"]:
    """Replicates less their mean within the stratum, scaled so that their squares sum to the variance."""
    units = figure.replicates.shape[-1]
    centred = figure.replicates - figure.replicates.mean(-1, keepdims=True)
    return np.sqrt((units - 1) / units) * centred


def debiased(figure: Jackknifed) -> Jackknifed:
    """The figure less the jackknife's estimate of its bias of order 1/n; its deviations stay as they are.

    For figures that are not linear in the moments: a squared gain, for one, is too large by its own variance.
    """
    units = figure.replicates.shape[-1]
    bias = (units - 1) * (figure.replicates.mean(-1) - figure.value[..., None]).sum(-1)
    return Jackknifed(figure.value - bias, figure.replicates - bias[..., None, None])


def covariance(first: Jackknifed, second: Jackknifed) -> Float[np.ndarray, "*cells"]:
    """Stratified delete-one jackknife covariance of two figures."""
    return (deviations(first) * deviations(second)).sum((-2, -1))


def variance(figure: Jackknifed) -> Float[np.ndarray, "*cells"]:
    """Stratified delete-one jackknife variance of a figure."""
    return (deviations(figure) ** 2).sum((-2, -1))


def degrees_of_freedom(figure: Jackknifed) -> Float[np.ndarray, "*cells"]:
    """Satterthwaite's degrees of freedom of the variance: units - 1 for one stratum.

    A figure that does not vary at all has those of all strata together.
    """
    strata, units = figure.replicates.shape[-2:]
    per_stratum = (deviations(figure) ** 2).sum(-1)
    total = per_stratum.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = (units - 1) * total**2 / (per_stratum**2).sum(-1)
    return np.where(total > 0, degrees, np.where(total == 0, float(strata * (units - 1)), np.nan))
