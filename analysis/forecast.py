"""How many units would settle an unresolved verdict, at the present effect and spread.

The jackknife variance of T has a part that falls as 1/n and, from pairs of noise, a part that falls as 1/n^2; the
second is told by the off-diagonal of the centred contrast Gram. What is forecast is the verdict's own statistic.
"""

import numpy as np
from jaxtyping import Float
from scipy import special

from analysis.verdict import LEVEL

LIMIT = 1e6
"""A forecast beyond this many times the present number is not given."""


def units_needed(
    value: Float[np.ndarray, "*cells"],
    spread: Float[np.ndarray, "*cells"],
    pairs: Float[np.ndarray, "*cells"],
    degrees: Float[np.ndarray, "*cells"],
    units: int,
) -> Float[np.ndarray, "*cells"]:
    """Smallest number of units with |T| > t sqrt(V), NaN beyond ``LIMIT``.

    ``spread`` is the present variance of T, ``pairs`` its 1/n^2 part; degrees of freedom grow with the units.
    """
    quadratic = np.minimum(pairs, spread)
    linear = spread - quadratic

    def settled(factor: np.ndarray) -> np.ndarray:
        variance = linear / factor + quadratic / factor**2
        grown = degrees * (units * factor - 1.0) / (units - 1.0)
        return np.abs(value) > -special.stdtrit(grown, LEVEL) * np.sqrt(variance)

    low, high = np.zeros_like(spread), np.full_like(spread, np.log(LIMIT))
    possible = settled(np.exp(high))
    for _ in range(60):
        middle = 0.5 * (low + high)
        enough = settled(np.exp(middle))
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(possible & np.isfinite(spread), np.ceil(units * np.exp(high) - 1e-6), np.nan)
