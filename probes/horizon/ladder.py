"""Which runs a horizon is measured from: the baseline, doses of which each is twice the last, jitters of the start.

The doses are written as fractions, ``1/8,1/4,1/2,1``; so are the steps that are looked at, ``64`` for powers of two up
to it, or a list.
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from analysis.errors import UsageError
from analysis.horizon.growth import FEWEST_JITTERS
from analysis.horizon.schema import BASELINE

MOST_STEPS = 10**6


@dataclass(frozen=True)
class Branch:
    """One run. dose: share of the treatment's gradient; jitter: number of the jitter of its start, from 1."""

    name: str
    dose: float = 0.0
    jitter: int = 0


@dataclass(frozen=True)
class Ladder:
    """doses: growing, by name; jitters: how many, each of relative ``size``; steps: looked at, growing."""

    doses: dict[str, float]
    jitters: int
    size: float
    steps: tuple[int, ...]

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Every run of one seed, the baseline first."""
        doses = (Branch(name, dose) for name, dose in self.doses.items())
        return (Branch(BASELINE), *doses, *(Branch(jitter_name(i), jitter=i) for i in range(1, self.jitters + 1)))


def ladder(doses: str, *, jitters: int, size: float, steps: str) -> Ladder:
    """The ladder as it is written. UsageError, one line, for what cannot be climbed."""
    if jitters != 0 and jitters < FEWEST_JITTERS:
        raise UsageError(f"--jitters {jitters}: a growth rate takes {FEWEST_JITTERS} or more; 0 leaves it out")
    if not 0 < size < 1:
        raise UsageError(f"--jitter-size {size:g}: takes a relative size between 0 and 1, such as 1e-5")
    return Ladder(dose_list(doses), jitters, size, step_list(steps))


def dose_list(text: str) -> dict[str, float]:
    """Doses in (0, 1], each twice the one before, by the text of the fraction."""
    found = [dose(part) for part in text.split(",")]
    for one in found:
        if not 0 < one <= 1:
            raise UsageError(f"--doses {text}: dose {one}; allowed: 0 < dose <= 1")
    for lower, upper in pairwise(found):
        if upper != 2 * lower:
            raise UsageError(f"--doses {text}: {upper} after {lower}; each is twice the one before, as 1/4,1/2,1")
    if len(found) < 2:
        raise UsageError(f"--doses {text}: one dose has no half to compare with; give two or more, as 1/2,1")
    return {str(one): float(one) for one in found}


def dose(text: str) -> Fraction:
    """``1/8`` or ``0.125``."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"--doses: '{text.strip()}' is no number; write fractions, as 1/8,1/4,1/2,1") from None


def step_list(text: str) -> tuple[int, ...]:
    """``64``: 1, 2, 4 … 64; ``1,2,3,5``: these."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"--steps {text}: takes a number of steps, or a growing list of them as 1,2,4,8") from None
    if numbers[0] < 1 or numbers[-1] > MOST_STEPS or any(b <= a for a, b in pairwise(numbers)):
        raise UsageError(f"--steps {text}: takes whole numbers from 1 to {MOST_STEPS}, each larger than the last")
    if len(numbers) > 1:
        return tuple(numbers)
    last = numbers[0]
    return tuple(sorted({2**i for i in range(last.bit_length())} | {last}))


def jitter_name(number: int) -> str:
    """Of a jitter in a store, from 1."""
    return f"jitter {number}"
