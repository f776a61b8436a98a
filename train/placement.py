"""Which training steps an arm treats: all inside its window, and of those the share its placement asks for.

A step is *eligible* when every sigma of its samples, accumulated ones included, lies in the arm's window: the window is
batch-strict, so a treated step is treated as a whole (docs/method.md, Eq. 22). Of n eligible steps of a run

    (nothing)    treats all
    early:f      the first k, k = f n rounded up
    late:f       the last k, the same k, so that early and late are of one dose
    spread:f     each one whose coin, a uniform number of (seed, step), is below f: about f n, anywhere

``early`` and ``late`` look ahead over the whole run, so they mean something else when it gets longer. The coins are the
same for all arms: what spread:0.3 treats, spread:0.6 treats too. An arm of several routes treats a step by the first
one whose window holds it, and each route's placement counts its own eligible steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from jaxtyping import Bool, Float64, Int64

from train.arms import Arm, Placement
from train.plan import NATIVE
from train.step_uniforms import step_uniforms

#: sigma as drawn of consecutive steps, [steps, samples]; samples = batch x accumulation.
SigmasOf = Callable[[range], np.ndarray]

AHEAD = 4096  # steps drawn at once


@dataclass(frozen=True)
class Schedule:
    """Of every step of a run: whether the arm could treat it, whether it does, and by which route (-1: none)."""

    eligible: Bool[np.ndarray, " steps"]
    treated: Bool[np.ndarray, " steps"]
    route: Int64[np.ndarray, " steps"]

    @property
    def first_treated(self) -> int | None:
        """The first treated step; before it two arms of one seed are equal to the byte."""
        return int(self.treated.argmax()) if self.treated.any() else None

    def by_route(self, routes: int) -> Bool[np.ndarray, "routes steps"]:
        """Which steps each of the arm's ``routes`` treats."""
        return self.treated & (self.route == np.arange(routes)[:, None])


def depends_on_steps(arm: Arm) -> bool:
    """Whether the treated steps change with the planned number of steps: such a run cannot be resumed to more."""
    return any(route.placement is not None and route.placement.where in ("early", "late") for route in arm.routes)


def eligible(arm: Arm, sigmas: Float64[np.ndarray, " samples"]) -> bool:
    """Whether every sigma of one step lies in one window lo < sigma <= hi; never where that route changes nothing."""
    return bool(eligible_steps(arm, sigmas[None])[0])


def eligible_steps(arm: Arm, sigmas: Float64[np.ndarray, "steps samples"]) -> Bool[np.ndarray, " steps"]:
    """The same for each of many steps."""
    return route_of_steps(arm, sigmas) >= 0


def route_of_steps(arm: Arm, sigmas: Float64[np.ndarray, "steps samples"]) -> Int64[np.ndarray, " steps"]:
    """Place among the arm's routes of the first whose window holds every sigma of a step; -1 where none changes it."""
    found = np.full(len(sigmas), -1)
    for place, route in reversed(list(enumerate(arm.routes))):
        inside = np.all((route.lo < sigmas) & (sigmas <= route.hi), axis=1)
        found[inside] = place if route.active != NATIVE else -1
    return found


def schedule(arm: Arm, steps: int, sigmas_of: SigmasOf, *, seed: int) -> Schedule:
    """The plan of a run of ``steps`` steps, from its sigma draws alone. ``sigmas_of`` is asked for ranges of steps."""
    chunks = [range(start, min(start + AHEAD, steps)) for start in range(0, steps, AHEAD)]
    found = np.concatenate([route_of_steps(arm, sigmas_of(chunk)) for chunk in chunks])
    treated = np.zeros(steps, dtype=bool)
    for place, route in enumerate(arm.routes):
        possible = found == place
        treated |= possible if route.placement is None else placed(route.placement, possible, seed=seed)
    return Schedule(found >= 0, treated, found)


def placed(placement: Placement, possible: Bool[np.ndarray, " steps"], *, seed: int) -> Bool[np.ndarray, " steps"]:
    """Of the eligible steps of a whole run, those that ``placement`` treats."""
    if placement.where == "spread":
        coins = step_uniforms(range(len(possible)), 1, seed=seed, purpose="placement")[:, 0]
        return possible & (coins < placement.fraction)
    rank = np.cumsum(possible)  # of an eligible step among them, from 1
    # The fraction as it was written: in float64, 0.07 x 100 is a little above 7.
    count = ceil(Fraction(repr(placement.fraction)) * int(rank[-1]))
    first = rank <= count if placement.where == "early" else rank > int(rank[-1]) - count
    return possible & first
