"""CosMap: the log signal-to-noise ratios of the cosine schedule, for flow matching (arXiv:2403.03206, Eq. 21).

The paper's t = 1 - 1 / (tan(pi u / 2) + 1) has t = 1 as noise and grows with u; it is symmetric about 1/2. Scripts of
diffusers take ``cosmap`` for a *weight*, the density of this distribution, on uniform timesteps: the same mean
gradient, another spread. Here the sigma themselves are drawn so.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64


@dataclass(frozen=True)
class CosMap:
    """sigma = sin / (sin + cos) of pi u / 2; density 2 / (pi (1 - 2 sigma + 2 sigma^2))."""

    def quantile(self, u: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        sine, cosine = np.sin(np.pi / 2 * u), np.cos(np.pi / 2 * u)
        return sine / (sine + cosine)

    def cumulative(self, sigma: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        return 2 / np.pi * np.arctan2(sigma, 1 - sigma)
