"""Arms: the ways to make a training step, written as text.

    demote:56                      every step on the 56-pixel tier
    demote:7/8+shift:snr@0.5       only where 0.5 < sigma <= 1, with sigma matched in signal to noise
    demote:48@0.3:0.6/early:0.5    in that window, in the first half of the eligible training steps
    demote:48@0.8,demote:56@0.5    two routes: a step takes the first whose window holds it

``term+term...@lo[:hi]/placement``, several of them joined by commas: window and placement bind one route; a placement
has a meaning in training only. Terms are in ``train.treatments``; ``train arms`` lists them.
"""

from dataclasses import dataclass
from functools import cached_property, reduce

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
class Route:
    """Treatments where lo < sigma <= hi; ``text`` as written."""

    text: str
    treatments: tuple[Treatment, ...]
    lo: float = 0.0
    hi: float = 1.0
    placement: Placement | None = None

    @cached_property
    def active(self) -> Plan:
        """What is done inside the window."""
        return reduce(lambda plan, t: t.change(plan), self.treatments, NATIVE)


@dataclass(frozen=True)
class Arm:
    """One parsed arm; ``text`` is its name in every dataset. Without routes it is native."""

    text: str
    routes: tuple[Route, ...] = ()

    def plan(self, sigma: float) -> Plan:
        """What this arm does at ``sigma``, by the first route that holds it; outside all windows the native step."""
        return next((route.active for route in self.routes if route.lo < sigma <= route.hi), NATIVE)

    @property
    def lo(self) -> float:
        """No window begins below it."""
        return min((route.lo for route in self.routes), default=0.0)

    @property
    def hi(self) -> float:
        """The end of the highest window: in a window itself, so what is done there is ``plan(hi)``."""
        return max((route.hi for route in self.routes), default=1.0)

    @property
    def placement(self) -> Placement | None:
        """That of the first route which has one."""
        return next((route.placement for route in self.routes if route.placement is not None), None)


NATIVE_ARM = Arm("native")


def parse(text: str) -> Arm:
    """The arm that ``text`` describes; a UsageError names the term, what it got and what it takes."""
    return Arm(text.strip(), tuple(_route(text, part.strip()) for part in text.split(",")))


def _route(text: str, part: str) -> Route:
    body, slash, placing = part.partition("/")
    # A tier may be a fraction (demote:7/8), so a slash only starts a placement when a word follows.
    while slash and not placing[:1].isalpha():
        more, slash, rest = placing.partition("/")
        body, placing = f"{body}/{more}", rest
    terms, at, window = body.partition("@")
    if not terms:
        raise UsageError(f"arm '{text}': no term; write native, or terms such as demote:56 joined by +")
    lo, hi = sigma_range.parse(window, f"arm '{text}': window") if at else (0.0, 1.0)
    placement = _placement(text, placing) if slash else None
    route = Route(part, tuple(map(treatment, terms.split("+"))), lo, hi, placement)
    _ = route.active  # two terms that exclude each other are found now
    return route


def _placement(text: str, placing: str) -> Placement:
    where, _, share = placing.partition(":")
    try:
        fraction = float(share)
    except ValueError:
        fraction = -1.0
    if where not in PLACEMENTS or not 0 < fraction <= 1:
        raise UsageError(f"arm '{text}': placement /{placing}; it takes /early:f, /late:f or /spread:f with 0 < f <= 1")
    return Placement(where, fraction)
