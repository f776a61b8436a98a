"""Arms: the ways to make a training step, written as text.

    demote:56                      every step on the 56-pixel tier
    demote:7/8+shift:snr@0.5       only where 0.5 < sigma <= 1, with sigma matched in signal to noise
    demote:48@0.3:0.6/early:0.5    in that window, in the first half of the eligible training steps

``term+term...@lo[:hi]/placement``: the window and the placement bind the whole arm; a placement has a
meaning in training only. Terms are in ``train.treatments``; ``train arms`` lists them.
"""

from dataclasses import dataclass
from functools import reduce

from analysis import sigma_range
from analysis.errors import UsageError
from train.plan import NATIVE, Plan
from train.treatments import Treatment, treatment

PLACEMENTS = ("early", "late", "spread")


@dataclass(frozen=True)
class Placement:
    """Which share of the eligible training steps is treated."""

    where: str
    fraction: float


@dataclass(frozen=True)
class Arm:
    """One parsed arm; ``text`` is its name in every dataset."""

    text: str
    treatments: tuple[Treatment, ...] = ()
    lo: float = 0.0
    hi: float = 1.0
    placement: Placement | None = None

    def plan(self, sigma: float) -> Plan:
        """What this arm does at ``sigma``: the native step outside its window lo < sigma <= hi."""
        if not self.lo < sigma <= self.hi:
            return NATIVE
        return reduce(lambda plan, t: t.change(plan), self.treatments, NATIVE)


NATIVE_ARM = Arm("native")


def parse(text: str) -> Arm:
    """The arm that ``text`` describes; a UsageError names the term, what it got and what it takes."""
    body, slash, placing = text.strip().partition("/")
    # A tier may be a fraction (demote:7/8), so a slash only starts a placement when a word follows.
    while slash and not placing[:1].isalpha():
        more, slash, rest = placing.partition("/")
        body, placing = f"{body}/{more}", rest
    terms, at, window = body.partition("@")
    if not terms:
        raise UsageError(f"arm '{text}': no term; write native, or terms such as demote:56 joined by +")
    lo, hi = sigma_range.parse(window, f"arm '{text}': window") if at else (0.0, 1.0)
    arm = Arm(
        text.strip(), tuple(map(treatment, terms.split("+"))), lo, hi, _placement(text, placing) if slash else None
    )
    arm.plan(arm.hi)  # two terms that exclude each other are found now
    return arm


def _placement(text: str, placing: str) -> Placement:
    where, _, share = placing.partition(":")
    try:
        fraction = float(share)
    except ValueError:
        fraction = -1.0
    if where not in PLACEMENTS or not 0 < fraction <= 1:
        raise UsageError(f"arm '{text}': placement /{placing}; it takes /early:f, /late:f or /spread:f with 0 < f <= 1")
    return Placement(where, fraction)
