"""When to look at a growing cell, and at which level."""

from dataclasses import dataclass

from analysis.errors import UsageError
from analysis.sequential.boundary import nominal_level

FEWEST = 4
"""Images at the first look: what a verdict about a population of images needs."""


@dataclass(frozen=True)
class Looks:
    """counts: images at each look, increasing; the last look has all there are."""

    counts: tuple[int, ...]

    @property
    def level(self) -> float:
        """Nominal one-sided level of each look."""
        return nominal_level(tuple(count / self.counts[-1] for count in self.counts))

    @classmethod
    def equally_spaced(cls, images: int, number: int) -> "Looks":
        """``number`` looks as equally spaced as whole images are. UsageError where the first would have too few."""
        if number < 1:
            raise UsageError(f"{number} looks: a verdict needs 1 or more")
        counts = tuple(round(images * look / number) for look in range(1, number + 1))
        if counts[0] < FEWEST:
            raise UsageError(
                f"{number} looks at {images} images: the first would have {counts[0]} and a verdict needs {FEWEST}; "
                f"give {FEWEST * number} images or more, or {max(1, images // FEWEST)} looks or fewer"
            )
        return cls(counts)
