"""Which arms of a store are marks, and of which dose."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("gain", "jitter", "shift", "dtype")


@dataclass(frozen=True)
class Mark:
    """One mark: ``arm`` is its arm's name in a store, ``dose`` its size in the kind's unit (None: it has no number).

    The unit of ``gain`` is |c - 1|, of ``jitter`` the relative standard deviation, of ``shift`` |change of sigma|.
    """

    arm: str
    kind: str
    dose: float | None


def mark(arm: str) -> Mark | None:
    """The mark that an arm is: ``gain:c``, ``jitter:s``, ``shift:0.01`` or ``dtype:T`` alone, perhaps in a window.

    A dose of zero is no mark.
    """
    term = arm.split("@", 1)[0].split("/", 1)[0]
    kind, _, argument = term.partition(":")
    if kind not in KINDS or "+" in term or not argument:
        return None
    if kind == "dtype":
        return Mark(arm, kind, None)
    try:
        number = float(argument)
    except ValueError:  # shift:snr
        return None
    dose = abs(number - 1.0) if kind == "gain" else abs(number)
    return Mark(arm, kind, dose) if 0.0 < dose < math.inf else None


def marks(arms: Sequence[str]) -> list[Mark]:
    """Every mark among ``arms``, by kind and dose."""
    found = [one for one in map(mark, arms) if one is not None]
    return sorted(found, key=lambda one: (KINDS.index(one.kind), one.dose or 0.0))
