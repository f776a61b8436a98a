"""How often a sampler draws what a sigma of the grid stands for.

A grid sigma stands for its *cell*: the range between the midpoints to its neighbours, at the grid's ends half a step
beyond. sigma = 1 is its own cell: its input holds no image, so no neighbour vouches for it. What no cell holds is
uncovered.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Integer

from analysis.errors import UsageError
from analysis.sigma_samplers import SigmaSampler

BELOW_ONE = float(np.nextafter(1.0, 0.0))


@dataclass(frozen=True)
class Shares:
    """Cells (lo, hi] of a grid, and the shares of all drawn sigma in any range."""

    sampler: SigmaSampler
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    tokens: Integer[np.ndarray, " image"]  # of each image's native grid; ``flux`` reads them
    _below: dict[float, float] = field(default_factory=dict)

    def below(self, sigma: float) -> float:
        """The share of all sigma at or below ``sigma``, a mean over images where it depends on them."""
        if sigma not in self._below:
            sizes, counts = np.unique(self.tokens, return_counts=True)
            found = self.sampler.cumulative(np.full(len(sizes), sigma), sizes if self.sampler.needs_tokens else None)
            self._below[sigma] = float(found @ counts / counts.sum()) if sigma > 0 else 0.0
        return self._below[sigma]

    def within(self, lo: float, hi: float) -> Float[np.ndarray, " sigma"]:
        """The share of each cell's part in lo < sigma <= hi."""
        ranges = [(max(lo, start), min(hi, stop)) for start, stop in zip(self.lo, self.hi, strict=True)]
        return np.array([self.below(stop) - self.below(start) if start < stop else 0.0 for start, stop in ranges])

    @property
    def uncovered(self) -> float:
        """The share of all sigma in no cell."""
        return max(0.0, 1.0 - float(self.within(0.0, 1.0).sum()))


def shares(grid: Sequence[float], sampler: SigmaSampler, tokens: Integer[np.ndarray, " image"]) -> Shares:
    """Cells of a strictly increasing ``grid`` in (0, 1]. UsageError for fewer than two sigma below 1."""
    inner = [sigma for sigma in grid if sigma < 1.0]
    if len(inner) < 2:
        raise UsageError(f"{len(inner)} sigma below 1 in this store; a policy takes two or more: probe a longer grid")
    middles = [(a + b) / 2 for a, b in pairwise(inner)]
    first = max(0.0, round(inner[0] - (inner[1] - inner[0]) / 2, 12))
    top = BELOW_ONE if len(inner) < len(grid) else 1.0
    last = min(top, round(inner[-1] + (inner[-1] - inner[-2]) / 2, 12))
    edges = [first, *(round(middle, 12) for middle in middles), last]
    lo, hi = edges[:-1], edges[1:]
    if len(inner) < len(grid):
        lo, hi = [*lo, BELOW_ONE], [*hi, 1.0]
    return Shares(sampler, tuple(lo), tuple(hi), tokens)
