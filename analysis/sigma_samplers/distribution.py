"""A distribution of sigma on (0, 1], as two increasing functions that undo each other."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64


@runtime_checkable
class Distribution(Protocol):
    """Float64, element by element, so a number does not depend on what is computed beside it."""

    def quantile(self, u: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """The sigma below which a share ``u`` of all sigma lies; u in (0, 1]."""
        ...

    def cumulative(self, sigma: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """The share of all sigma that lies at or below ``sigma``; sigma in [0, 1]."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every sigma as often as any other."""

    def quantile(self, u: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        return u

    def cumulative(self, sigma: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        return sigma
