"""The smallest bias that a measurement of the present size would tell from none."""

import numpy as np
from jaxtyping import Float
from scipy import special

from analysis.verdict import LEVEL

Cells = Float[np.ndarray, "*cells"]


def smallest_square(curvature: Cells, pairs: Cells, degrees: Cells, chance: float) -> Cells:
    """The |bias|^2 that is resolved from 0 at one-sided 2.5 % with that chance.

    Its sampling variance is curvature x square + pairs / 2, of which the jackknife shows curvature x square + pairs.
    """
    quantile, reach = -special.stdtrit(degrees, LEVEL), special.ndtri(chance)

    def missing(square: np.ndarray) -> np.ndarray:
        shown, own = curvature * square + pairs, curvature * square + 0.5 * pairs
        return quantile * np.sqrt(shown) + reach * np.sqrt(own) - square

    low = np.zeros_like(curvature)
    high = 4.0 * (quantile + abs(reach)) ** 2 * curvature + 4.0 * (quantile + abs(reach)) * np.sqrt(pairs)
    for _ in range(60):
        middle = 0.5 * (low + high)
        open_ = missing(middle) > 0.0
        low, high = np.where(open_, middle, low), np.where(open_, high, middle)
    return high
