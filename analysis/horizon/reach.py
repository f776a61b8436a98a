"""The ruler horizon: the last step before non-linearity first reaches a limit, with an interval over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

LIMIT = 0.1
SATURATED = 0.6
"""Of |d(a)| / 2 |d(a/2)|, which falls from 1 to 1/2: doubling the dose then adds less than a fifth."""


@dataclass(frozen=True)
class End:
    """The last step of the ruler; 0: not even the first that was looked at. open: it was still holding at the last.

    0 and open: no non-linearity is known at any step.
    """

    step: int
    open: bool

    def __str__(self) -> str:
        if not self.step:
            return "not known" if self.open else "none"
        return f"{self.step} or more" if self.open else f"{self.step}"


@dataclass(frozen=True)
class Reach:
    """Of one dose. lower, upper: 95 % interval over seeds, None of one seed; by_seed: the horizon of each."""

    horizon: End
    lower: End | None
    upper: End | None
    by_seed: tuple[End, ...]


def reach(nonlinearity: Float[np.ndarray, "seed step"], steps: Sequence[int], limit: float = LIMIT) -> Reach:
    """Where the mean over seeds first reaches ``limit``, and where the bounds of its interval do.

    The mean is geometric: non-linearity grows by factors. NaN, where nothing was treated yet, is no end.
    """
    middle, lower, upper = interval(nonlinearity)
    by_seed = tuple(end(of_seed, steps, limit) for of_seed in nonlinearity)
    # The larger the non-linearity may be, the nearer the horizon.
    near, far = (None if bound is None else end(bound, steps, limit) for bound in (upper, lower))
    return Reach(end(middle, steps, limit), near, far, by_seed)


def end(curve: Float[np.ndarray, " step"], steps: Sequence[int], limit: float) -> End:
    """The last of ``steps`` before ``curve`` first reaches ``limit``; NaN reaches nothing."""
    beyond, known = np.flatnonzero(curve >= limit), np.flatnonzero(np.isfinite(curve))
    if not beyond.size:
        return End(int(steps[known[-1]]) if known.size else 0, True)
    before = known[known < beyond[0]]
    return End(int(steps[before[-1]]) if before.size else 0, False)


def interval(
    positive: Float[np.ndarray, "seed step"],
) -> tuple[Float[np.ndarray, " step"], Float[np.ndarray, " step"] | None, Float[np.ndarray, " step"] | None]:
    """Geometric mean over seeds, and its 95 % bounds by t(n - 1) on the logarithm; no bounds for fewer than 2 seeds.

    Seeds that are NaN at a step are left out there.
    """
    known = np.isfinite(positive)
    n = known.sum(0)
    logs = np.where(known, np.log(np.where(known, positive, 1.0)), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(n > 0, logs.sum(0) / n, np.nan)
        variance = np.where(known, (logs - mean) ** 2, 0.0).sum(0) / (n - 1)
        half = np.where(n > 1, stats.t.ppf(0.975, np.maximum(n - 1, 1)) * np.sqrt(variance / n), np.nan)
    if len(positive) < 2:
        return np.exp(mean), None, None
    return np.exp(mean), np.exp(mean - half), np.exp(mean + half)


def saturated_from(ratio: Float[np.ndarray, "seed step"], steps: Sequence[int]) -> int | None:
    """The first of ``steps`` from which on the mean over seeds of |d(a)| / 2 |d(a/2)| is at most ``SATURATED``."""
    known = np.isfinite(ratio)
    with np.errstate(invalid="ignore"):
        mean = np.where(known, ratio, 0.0).sum(0) / known.sum(0)
    low = mean <= SATURATED
    after = np.flatnonzero(~low)
    first = int(after[-1]) + 1 if after.size else 0
    return int(steps[first]) if first < len(steps) else None
