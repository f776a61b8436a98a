"""How low must one level be, used at every look, for the looks together to keep a total?

python -m analysis.sequential 4 8         # prints the nominal levels of 4 and of 8 equally spaced looks

The statistic of look k is Z_k = W(t_k) / sqrt(t_k), W a Brownian motion and t_k the share of the data that is there.
Its chance of having crossed a constant bound is integrated look by look (Armitage, McPherson and Rowe, J. R. Stat. Soc.
A 132, 1969); Pocock's bound (Biometrika 64, 1977) is the one whose chance is the total.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy import optimize, special

TOTAL = 0.05
"""One-sided chance, over all looks together, of a false verdict on one side."""
NODES = 128
"""Of the Gauss-Legendre rule at each look; with 50 looks a level is exact to 7 digits."""
REACH = 9.0
"""Standard deviations below zero beyond which a path is given up for lost."""


def crossing(bound: float, shares: Sequence[float]) -> float:
    """P(Z_k > bound at any look), for looks at the increasing ``shares`` of the data, the last 1."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    density, points, before = np.ones(1), np.zeros(1), 0.0
    for share in shares:
        root = np.sqrt(share)
        half = 0.5 * (bound + REACH) * root
        here = half * nodes + 0.5 * (bound - REACH) * root
        width = np.sqrt(share - before)
        step = np.exp(-0.5 * ((here[:, None] - points) / width) ** 2) / (width * np.sqrt(2.0 * np.pi))
        density, points, before = half * weights * (step @ density), here, share
    return float(1.0 - density.sum())


@lru_cache
def nominal_level(shares: tuple[float, ...], total: float = TOTAL) -> float:
    """The one-sided level that, used at every look, errs in ``total`` of all cases; ``total`` itself for one look."""
    if len(shares) == 1:
        return total

    def excess(bound: float) -> float:
        return crossing(bound, shares) - total

    lowest, highest = -special.ndtri(total), -special.ndtri(total / len(shares))
    bound = optimize.root_scalar(excess, bracket=(lowest, highest), xtol=1e-10).root
    return float(special.ndtr(-bound))
