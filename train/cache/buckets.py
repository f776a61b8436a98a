"""Aspect-ratio buckets: which grid a photograph gets in a tier.

A tier of T pixels has grids of at most T x T pixels whose sides are multiples of a unit, the autoencoder's factor
times the model's patch. A photograph gets the one nearest to its own aspect, and is never made larger.
"""

from functools import lru_cache
from math import log

from analysis.errors import UsageError
from train.pictures import LONGEST

Size = tuple[int, int]


@lru_cache
def buckets(tier: int, unit: int) -> tuple[Size, ...]:
    """Heights and widths in pixels of a tier's grids: for each side the longest other one."""
    tokens = (tier // unit) ** 2
    sides = [(side, tokens // side) for side in range(1, tokens + 1) if side <= LONGEST * (tokens // side)]
    found = {size for a, b in sides if b <= LONGEST * a for size in ((a, b), (b, a))}
    return tuple(sorted((rows * unit, columns * unit) for rows, columns in found))


def bucket(size: Size, tier: int, unit: int) -> Size:
    """The grid of a photograph of ``size``, both (height, width) in pixels: nearest aspect, then largest area."""
    height, width = size
    return min(
        buckets(tier, unit), key=lambda grid: (abs(log(grid[0] * width / (grid[1] * height))), -grid[0] * grid[1])
    )


def fits(size: Size, tier: int, unit: int) -> bool:
    """Whether a photograph fills its grid without being made larger."""
    rows, columns = bucket(size, tier, unit)
    return size[0] >= rows and size[1] >= columns


def largest_tier(size: Size, below: int, unit: int) -> int | None:
    """The largest tier below ``below`` that a photograph fits; None where there is none."""
    first = (below - 1) // unit * unit
    return next((tier for tier in range(first, 0, -unit) if fits(size, tier, unit)), None)


def tiers_of(text: str, unit: int) -> tuple[int, ...]:
    """``1024,896`` -> the tiers from the largest down. UsageError for one that is no multiple of the unit, or twice."""
    try:
        tiers = [int(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(f"--tiers {text}: takes sides in pixels, such as 1024,896") from None
    for tier in tiers:
        if tier < unit or tier % unit:
            below = tier - tier % unit
            near = " or ".join(str(t) for t in (below, below + unit) if t > 0)
            raise UsageError(f"--tiers {text}: {tier} is not a multiple of {unit} pixels, this model's; take {near}")
    if len(set(tiers)) < len(tiers):
        raise UsageError(f"--tiers {text}: a tier stands twice; give each once")
    return tuple(sorted(tiers, reverse=True))
