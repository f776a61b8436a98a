"""A range of sigma as arms and samplers write it: ``lo`` or ``lo:hi``, for lo < sigma <= hi."""

from analysis.errors import UsageError


def parse(text: str, of: str) -> tuple[float, float]:
    """lo and hi of ``text``, hi = 1 if it is not given; ``of`` begins the UsageError for anything else."""
    low, _, high = text.partition(":")
    try:
        lo, hi = float(low), float(high or 1.0)
    except ValueError:
        lo, hi = 1.0, 0.0
    if not 0 <= lo < hi <= 1:
        raise UsageError(f"{of} @{text}; it takes @lo or @lo:hi with 0 <= lo < hi <= 1")
    return lo, hi
