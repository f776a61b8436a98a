"""Grids of noise levels, written as text and resolved once.

0.3:0.9                    13 points with both ends
0.3:0.9:5                  5 points
0.5,0.7,1                  a list
0.02:0.08:4,0.1:0.9:9      segments
"""

from dataclasses import dataclass
from itertools import pairwise

from analysis.errors import UsageError

POINTS = 13  # of lo:hi without a count
DIGITS = 12  # decimals kept, so that 0.3:0.9 holds 0.35 and not 0.35000000000000003


@dataclass(frozen=True)
class SigmaGrid:
    """Strictly increasing noise levels in (0, 1]."""

    sigmas: tuple[float, ...]

    def __str__(self) -> str:
        return f"{len(self.sigmas)} sigma: " + " ".join(f"{sigma:g}" for sigma in self.sigmas)


def parse(text: str) -> SigmaGrid:
    """The grid that ``text`` describes; UsageError for an empty, reversed or out-of-range one."""
    sigmas: list[float] = []
    for part in text.split(","):
        sigmas += _segment(text, part.strip())
    for sigma in sigmas:
        if not 0 < sigma <= 1:
            raise UsageError(f"sigma grid '{text}': sigma {sigma:g}; allowed: 0 < sigma <= 1")
    for before, after in pairwise(sigmas):
        if not before < after:
            raise UsageError(f"sigma grid '{text}': {after:g} follows {before:g}; sigma must increase strictly")
    return SigmaGrid(tuple(sigmas))


def _segment(text: str, part: str) -> list[float]:
    takes = "it takes lo:hi, lo:hi:points, numbers joined by commas, or segments joined by commas"
    try:
        numbers = [float(number) for number in part.split(":")]
    except ValueError:
        raise UsageError(f"sigma grid '{text}': '{part}' is not a number or a range; {takes}") from None
    if any(number != number or abs(number) == float("inf") for number in numbers):
        raise UsageError(f"sigma grid '{text}': '{part}' is not finite; {takes}")
    match numbers:
        case [sigma]:
            return [sigma]
        case [lo, hi]:
            return _spaced(text, lo, hi, POINTS)
        case [lo, hi, points] if points == int(points) and points >= 2:
            return _spaced(text, lo, hi, int(points))
        case [_, _, points]:
            raise UsageError(f"sigma grid '{text}': {points:g} points from end to end; give a whole number from 2")
    raise UsageError(f"sigma grid '{text}': '{part}' has {len(numbers)} numbers; {takes}")


def _spaced(text: str, lo: float, hi: float, points: int) -> list[float]:
    if not lo < hi:
        raise UsageError(f"sigma grid '{text}': {lo:g}:{hi:g} does not increase; write the smaller sigma first")
    return [round(lo + (hi - lo) * i / (points - 1), DIGITS) for i in range(points)]
