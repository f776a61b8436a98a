"""How much of each (sigma, arm) is in a policy's expected gradient."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from analysis.policy.grammar import Policy
from analysis.policy.shares import Shares


def weights(
    policy: Policy, shares: Shares, arms: Sequence[str], *, baseline: int = 0, samples: int = 1
) -> Float[np.ndarray, "sigma arm"]:
    """w(sigma, arm) of Eq. 30, of sum 1 over what the grid covers.

    A cell that a window cuts goes to its arm in the share that lies inside. samples: of one optimiser step (batch x
    accumulation); a step is treated only when all of them lie in one window, so of a window with share q the share
    q^(samples - 1) of its samples is.
    """
    cells = shares.within(0.0, 1.0)
    found = np.zeros((len(cells), len(arms)))
    found[:, baseline] = cells
    for route in policy.routes:
        others = (shares.below(route.hi) - shares.below(route.lo)) ** (samples - 1)
        treated = shares.within(route.lo, route.hi) * others
        found[:, arms.index(route.arm)] += treated
        found[:, baseline] -= treated
    return found / cells.sum()
