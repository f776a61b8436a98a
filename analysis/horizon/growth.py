"""How fast two runs of one command part: the largest Lyapunov exponent, from jitters of the start.

The mean over jitters of log distance, fitted by a line against the step, only between 10 times the floor (below it
rounding makes the distance) and 0.1 of saturation (above it the distance has nowhere to go).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

ABOVE_FLOOR = 10.0
BELOW_SATURATION = 0.1
SATURATION = float(np.sqrt(2.0))
"""Separation of two displacements of one length that have nothing in common."""
FEWEST_JITTERS = 8
FEWEST_STEPS = 3


@dataclass(frozen=True)
class Growth:
    """rate: per step, of the distance's logarithm; None where no seed has three steps to fit a line to.

    error: one standard error, over jitters; lower, upper: 95 % interval over seeds, None of one seed;
    fitted: first and last step of each seed's line; too_large: in every seed the first look was beyond saturation's
    tenth already.
    """

    rate: float | None
    error: float | None
    lower: float | None
    upper: float | None
    fitted: tuple[tuple[int, int] | None, ...]
    too_large: bool = False


def growth(
    distance: Float[np.ndarray, "seed step jitter"],
    moved: Float[np.ndarray, "seed step"],
    rounding: Float[np.ndarray, "seed step"],
    steps: Sequence[int],
) -> Growth:
    """distance: |theta_k(jitter) - theta_k(0)|; moved: |theta_k(0) - theta_0|; rounding: the floor of distance."""
    at = np.asarray(steps, dtype=np.float64)
    slopes, fitted = [], []
    for of_seed, length, floor in zip(distance, moved, rounding, strict=True):
        use = usable(of_seed, length, floor)
        if use.sum() < FEWEST_STEPS:
            fitted.append(None)
            continue
        slopes.append(slope(at[use], np.log(of_seed[use])))
        fitted.append((int(at[use][0]), int(at[use][-1])))
    if not slopes:
        large = bool((middle(distance[:, 0]) >= BELOW_SATURATION * SATURATION * moved[:, 0]).all())
        return Growth(None, None, None, None, tuple(fitted), large)
    by_seed = np.array(slopes)
    rate, seeds = float(by_seed.mean()), len(by_seed)
    error = float(np.sqrt(by_seed.var(axis=1, ddof=1).sum() / by_seed.shape[1]) / seeds)
    if seeds < 2:
        return Growth(rate, error, None, None, tuple(fitted))
    half = stats.t.ppf(0.975, seeds - 1) * by_seed.mean(axis=1).std(ddof=1) / np.sqrt(seeds)
    return Growth(rate, error, float(rate - half), float(rate + half), tuple(fitted))


def usable(
    distance: Float[np.ndarray, "step jitter"], moved: Float[np.ndarray, " step"], floor: Float[np.ndarray, " step"]
) -> Bool[np.ndarray, " step"]:
    """Steps between the floor and saturation, before the first that is beyond it."""
    between = middle(distance)
    low = between < BELOW_SATURATION * SATURATION * moved
    before = np.cumsum(~low) == 0
    return before & (between > ABOVE_FLOOR * floor) & (between > 0)


def middle(distance: Float[np.ndarray, "*cells jitter"]) -> Float[np.ndarray, "*cells"]:
    """Geometric mean over jitters; 0 where one has not moved."""
    with np.errstate(divide="ignore"):
        return np.exp(np.log(distance).mean(axis=-1))


def slope(at: Float[np.ndarray, " step"], logs: Float[np.ndarray, "step jitter"]) -> Float[np.ndarray, " jitter"]:
    """Of the least-squares line of each jitter."""
    centred = at - at.mean()
    return centred @ logs / (centred @ centred)
