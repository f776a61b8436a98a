"""Mode sampling: more (or fewer) sigma in the middle, and both ends kept (arXiv:2403.03206, Eq. 20).

The paper's f(u) = 1 - u - s (cos^2(pi u / 2) - 1 + u) falls from 1 to 0; here it is read at 1 - u, which gives the same
distribution and lets sigma grow with u. It is symmetric about 1/2, so which end is noise makes no difference.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

LEAST_SCALE, LARGEST_SCALE = -1.0, 2 / (np.pi - 2)  # beyond them f is not monotone
HALVINGS = 53  # of [0, 1/2]: to the resolution of float64 below 1


@dataclass(frozen=True)
class Mode:
    """sigma = u + s (u - sin^2(pi u / 2)); scale s > 0 favours the middle, s < 0 the ends, s = 0 is uniform."""

    scale: float

    def quantile(self, u: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        # Collected in u, so that at s = -1 small sigma do not cancel.
        return (1 + self.scale) * u - self.scale * np.sin(np.pi / 2 * u) ** 2

    def cumulative(self, sigma: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        """By bisection of the half below 1/2: the quantile function has no inverse in closed form."""
        lower = np.minimum(sigma, 1 - sigma)
        below, above = np.zeros(sigma.shape), np.full(sigma.shape, 0.5)
        for _ in range(HALVINGS):
            middle = (below + above) / 2
            under = self.quantile(middle) <= lower
            below, above = np.where(under, middle, below), np.where(under, above, middle)
        return np.where(sigma <= 0.5, below, 1 - below)
