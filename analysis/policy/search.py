"""Which threshold policies there are, which of them no other beats, and which of a sequence are shown to be safe."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from analysis.policy.grammar import Policy, Route, own_window
from analysis.policy.shares import Shares
from analysis.schema import TOTAL
from analysis.verdict import LEVEL


def one_route(arm: str, shares: Shares) -> list[Policy]:
    """``arm`` above each edge of the grid's cells, the highest first; none that treats nothing."""
    own_lo, own_hi = own_window(arm)
    edges = [edge for edge, share in zip(shares.lo, shares.within(own_lo, own_hi), strict=True) if share > 0]
    return [Policy((Route(arm, max(edge, own_lo), own_hi),)) for edge in reversed(edges) if edge < own_hi]


def two_routes(arms: Sequence[str], shares: Shares) -> list[Policy]:
    """One arm above an edge t1, another one between a lower edge t2 and t1."""
    drawn = [edge for edge, share in zip(shares.lo, shares.within(0.0, 1.0), strict=True) if share > 0]
    windows = {arm: own_window(arm) for arm in arms}
    found = []
    for place, lower in enumerate(drawn):
        for upper in drawn[place + 1 :]:
            for high in arms:
                for low in (arm for arm in arms if arm != high):
                    above = (max(upper, windows[high][0]), windows[high][1])
                    below = (max(lower, windows[low][0]), min(upper, windows[low][1]))
                    if above[0] < above[1] and below[0] < below[1]:
                        found.append(Policy((Route(high, *above), Route(low, *below))))
    return list(dict.fromkeys(found))


def front(bias: Float[np.ndarray, " policy"], speed_up: Float[np.ndarray, " policy"]) -> Bool[np.ndarray, " policy"]:
    """Whether no other policy is at least as fast with less estimated bias, or faster with as little."""
    order = np.lexsort((bias, -speed_up))
    kept = np.zeros(len(bias), dtype=bool)
    least = np.inf
    for at in order:
        if bias[at] < least:  # not for NaN
            kept[at], least = True, bias[at]
    return kept


def p_everywhere(assessed: xr.Dataset) -> Float[np.ndarray, " policy"]:
    """p value of safe in total and in every block: the largest (an intersection-union test), 1 for an undefined one."""
    return assessed["p_safe"].fillna(1.0).max("block").values


def safe_before(p_values: Sequence[float], arms: int) -> int:
    """How many policies of a fixed sequence are safe, from its start, at this one of ``arms`` sequences' level."""
    return next((place for place, p in enumerate(p_values) if not p < LEVEL / arms), len(p_values))


def sequences(assessed: xr.Dataset, of_arm: dict[str, list[str]]) -> dict[str, list[str]]:
    """Of each arm's thresholds, from the top down, those up to the first that is not safe."""
    assert TOTAL in assessed["block"].values
    p_values = dict(zip(assessed["policy"].values.tolist(), p_everywhere(assessed).tolist(), strict=True))
    return {arm: names[: safe_before([p_values[name] for name in names], len(of_arm))] for arm, names in of_arm.items()}
