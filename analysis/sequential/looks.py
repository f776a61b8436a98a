"""When to look at a growing cell, and at which level."""

from dataclasses import dataclass

from analysis.errors import UsageError
from analysis.sequential.boundary import TOTAL, nominal_level

FEWEST = 4
"""Images at the first look: what a verdict about a population of images needs."""
TOTALS = {"relative": TOTAL, "angle": TOTAL, "budget": 0.025}
"""By rule, such that false verdicts stay below 6 % in every simulated world. In heavy tails those of ``budget`` are
twice what a normal statistic's would be, and of ``gap``, which has none, up to a quarter of ``safe``."""


@dataclass(frozen=True)
class Looks:
    """counts: images at each look, increasing; the last look has all there are."""

    counts: tuple[int, ...]

    def level(self, rule: str) -> float:
        """Nominal one-sided level of each look. ``rule`` is one of ``TOTALS``."""
        return self.level_of(TOTALS[rule])

    def level_of(self, total: float) -> float:
        """Nominal one-sided level of each look that errs in ``total`` of all cases."""
        return nominal_level(tuple(count / self.counts[-1] for count in self.counts), total)

    @classmethod
    def equally_spaced(cls, images: int, number: int) -> "Looks":
        """``number`` looks as equally spaced as whole images are. UsageError where the first would have too few."""
        if number < 2:
            raise UsageError(
                f"--looks {number}: give 2 or more; with a single one, at the end, nothing stops early, and a sweep of "
                "fixed size has half the error"
            )
        counts = tuple(round(images * look / number) for look in range(1, number + 1))
        if counts[0] < FEWEST:
            raise UsageError(
                f"{number} looks at {images} images: the first would have {counts[0]} and a verdict needs {FEWEST}; "
                f"give {FEWEST * number} images or more"
                + (f", or at most {images // FEWEST} looks" if images >= 2 * FEWEST else "")
            )
        return cls(counts)
