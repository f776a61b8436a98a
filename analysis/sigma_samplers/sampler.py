"""A sampler of sigma: a distribution, shifted, then cut to a range (docs/method.md, Eq. 16 to 19)."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from jaxtyping import Float64, Integer

from analysis.errors import UsageError
from analysis.sigma_samplers.distribution import Distribution
from analysis.sigma_samplers.shift import flux_factor, shifted, unshifted

#: The open end at 0. sigma is never 0 and never below the spacing of float64 just under 1, so a distribution that
#: puts mass there (a very wide logit-normal) has it on this point, just as it has mass on 1 where it rounds to 1.
SMALLEST_SIGMA = 2.0**-53

LEAST_MASS = 1e-9  # of a range; less would leave few distinct sigma in float64

Tokens = Integer[np.ndarray, "*#shape"]


@dataclass(frozen=True)
class SigmaSampler:
    """``text`` as written; sigma of ``base`` shifted by ``shift``, and of the shifted only lo < sigma <= hi.

    The shift comes first: the range is one of the sigma that the model sees. ``tokens`` are those of each sample's
    native grid, and only the shift of Flux reads them: an arm's smaller grid leaves sigma as it is.
    """

    text: str
    base: Distribution
    shift: float | Literal["flux"] = 1.0
    lo: float = 0.0
    hi: float = 1.0

    @property
    def needs_tokens(self) -> bool:
        """Whether sigma depends on the size of the native grid."""
        return self.shift == "flux"

    def quantile(self, u: Float64[np.ndarray, "*shape"], tokens: Tokens | None = None) -> Float64[np.ndarray, "*shape"]:
        """sigma at the share ``u`` in (0, 1] of the distribution, Eq. 16 to 19; UsageError for an empty range."""
        s = self._factor(u.shape, tokens)
        start, mass = self._ranges(s)
        sigma = shifted(self.base.quantile(start + u * mass), s)
        # By rounding alone could sigma leave (lo, hi].
        return np.minimum(np.maximum(sigma, max(np.nextafter(self.lo, 1), SMALLEST_SIGMA)), self.hi)

    def cumulative(
        self, sigma: Float64[np.ndarray, "*shape"], tokens: Tokens | None = None
    ) -> Float64[np.ndarray, "*shape"]:
        """The share of all drawn sigma at or below ``sigma``."""
        s = self._factor(sigma.shape, tokens)
        start, mass = self._ranges(s)
        inside = np.minimum(np.maximum(sigma, self.lo), self.hi)
        share = (self.base.cumulative(unshifted(inside, s)) - start) / mass
        return np.minimum(np.maximum(share, 0.0), 1.0)

    def _factor(self, shape: tuple[int, ...], tokens: Tokens | None) -> np.ndarray:
        if self.shift != "flux":
            return np.full(shape, self.shift)
        if tokens is None:
            raise ValueError(f"sigma sampler {self.text}: give the tokens of each sample's native grid")
        return np.broadcast_to(flux_factor(np.asarray(tokens)), shape)

    def _ranges(self, s: Float64[np.ndarray, "*shape"]) -> tuple[np.ndarray, np.ndarray]:
        """For every shift: where (lo, hi] starts among the shares of the uncut distribution, and how much it holds."""
        if (self.lo, self.hi) == (0, 1):
            return np.zeros(s.shape), np.ones(s.shape)
        factors, which = np.unique(s, return_inverse=True)
        ranges = np.array([_range(self, factor) for factor in factors.tolist()])[which.reshape(s.shape)]
        return ranges[..., 0], ranges[..., 1]


@lru_cache(maxsize=4096)
def _range(sampler: SigmaSampler, factor: float) -> tuple[float, float]:
    s, ends = np.full(2, factor), np.array([sampler.lo, sampler.hi])
    start, stop = sampler.base.cumulative(unshifted(ends, s)).tolist()
    start, stop = start if sampler.lo > 0 else 0.0, stop if sampler.hi < 1 else 1.0
    if stop - start < LEAST_MASS:
        raise UsageError(
            f"sigma sampler '{sampler.text}': a share {stop - start:.0e} of its sigma lies in the range "
            f"@{sampler.lo}:{sampler.hi}; it takes {LEAST_MASS:.0e}: widen the range, or choose another sampler"
        )
    return start, stop - start
