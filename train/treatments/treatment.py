"""A treatment: a name for one change to the plan of a step."""

from collections.abc import Callable
from dataclasses import dataclass

from analysis.errors import UsageError
from train.plan import Plan


@dataclass(frozen=True)
class Treatment:
    """``term`` as the user wrote it, ``place`` of the four, and what it does to a plan."""

    term: str
    place: str
    change: Callable[[Plan], Plan]


def bad(term: str, argument: str | None, takes: str) -> UsageError:
    """The error of a term with a bad argument: names the term, what it got and what it takes."""
    got = "nothing" if argument is None else f"'{argument}'"
    return UsageError(f"arm term {term}: got {got}; it takes {takes}")


def number(term: str, argument: str | None, takes: str) -> float:
    """``argument`` as a finite number."""
    try:
        value = float(argument or "")
    except ValueError:
        raise bad(term, argument, takes) from None
    if not abs(value) < float("inf"):
        raise bad(term, argument, takes)
    return value
