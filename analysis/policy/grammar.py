"""Policies as text: routes joined by commas, ``demote:48@0.8,demote:56@0.5:0.8``.

A route is an arm of the store and a window lo < sigma <= hi, which no two routes share; outside all of them the step is
the native one. ``train --arm`` takes the same text.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from analysis import sigma_range
from analysis.errors import UsageError


@dataclass(frozen=True)
class Route:
    """``arm`` of the store, where lo < sigma <= hi."""

    arm: str
    lo: float = 0.0
    hi: float = 1.0

    def __str__(self) -> str:
        """As ``train`` takes it: an arm with a window of its own is written with the part that is left of it."""
        body = self.arm.partition("@")[0]
        if (self.lo, self.hi) == (0.0, 1.0):
            return body
        return f"{body}@{self.lo:.12g}" + (f":{self.hi:.12g}" if self.hi < 1 else "")


@dataclass(frozen=True)
class Policy:
    """Routes with windows that do not overlap; without any it is the native run."""

    routes: tuple[Route, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.routes)) or "native"


def parse(text: str, arms: Sequence[str], grid: Sequence[float]) -> Policy:
    """The policy that ``text`` describes, over the treated ``arms`` and the sigma ``grid`` of a store.

    UsageError for an arm that is not one of them, windows that overlap, and a window without any sigma of the grid.
    """
    routes = [_route(text, part.strip(), arms) for part in text.split(",")]
    for one, other in combinations(routes, 2):
        if max(one.lo, other.lo) < min(one.hi, other.hi):
            raise UsageError(f"policy '{text}': {one} and {other} overlap; give each sigma to one of them")
    for route in routes:
        if not any(route.lo < sigma <= route.hi for sigma in grid):
            raise UsageError(
                f"policy '{text}': no sigma of the store lies in the window of {route}; it has "
                f"{', '.join(f'{sigma:g}' for sigma in grid)}"
            )
    return Policy(tuple(routes))


def own_window(arm: str) -> tuple[float, float]:
    """The window that an arm of the store has by its own name."""
    _, at, window = arm.partition("@")
    return sigma_range.parse(window, f"arm '{arm}': window") if at else (0.0, 1.0)


def _route(text: str, part: str, arms: Sequence[str]) -> Route:
    arm, at, window = (part, "", "") if part in arms else part.rpartition("@")
    if not at:
        arm, window = part, ""
    if arm not in arms:
        near = difflib.get_close_matches(arm, arms, n=1, cutoff=0.0)[0]
        raise UsageError(f"policy '{text}': no arm '{arm}' in this store; the nearest of {', '.join(arms)} is {near}")
    lo, hi = sigma_range.parse(window, f"policy '{text}': window") if at else (0.0, 1.0)
    own_lo, own_hi = own_window(arm)
    if max(lo, own_lo) >= min(hi, own_hi):
        raise UsageError(f"policy '{text}': @{window} lies outside {arm}'s own window; leave it out, or widen it")
    return Route(arm, max(lo, own_lo), min(hi, own_hi))
