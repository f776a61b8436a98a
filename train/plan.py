"""What a training step will do, before any number is drawn.

A plan starts as the native step, and each treatment of an arm changes it. It is data: printed,
compared and hashed, it says everything that sets one arm apart from another at one sigma.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from analysis.errors import UsageError
from train.rope import NATIVE_STRETCH, Stretch

#: Changes a per-sample gradient: (gradients by parameter name, sample, seed) -> gradients.
GradientChange = Callable[[dict[str, Tensor], "Sample", int], dict[str, Tensor]]


@dataclass(frozen=True, order=True)
class Sample:
    """One image with its conditioning (by name) and the number of one noise draw for it."""

    image: str
    draw: int


@dataclass(frozen=True)
class Tier:
    """A resolution class as an arm names it: ``side`` in pixels, or ``fraction`` of the native side."""

    side: int | None = None
    numerator: int = 1
    denominator: int = 1

    def of(self, native: int) -> int:
        """Side in pixels where the native tier is ``native``."""
        if self.side is not None:
            return self.side
        side, rest = divmod(native * self.numerator, self.denominator)
        if rest:
            raise UsageError(f"tier {self}: {self} of the native {native} pixels is not a whole number of pixels")
        return side

    def __str__(self) -> str:
        return str(self.side) if self.side is not None else f"{self.numerator}/{self.denominator}"


@dataclass(frozen=True)
class Plan:
    """The native step unless a field says otherwise."""

    demote: Tier | None = None  # pixels resized, then encoded: a smaller grid
    demote_latent: Tier | None = None  # the latent resized: a smaller grid
    repromote: Tier | None = None  # pixels down and up, then encoded: the native grid
    reencode: bool = False  # encoded, decoded and encoded again, on the native grid
    coupling: str | None = None  # noise across grids; None: the default, area
    stream: str = "noise"  # purpose of the noise draw
    shift: float | str | None = None  # added to sigma, or "snr"
    stretch: Stretch = NATIVE_STRETCH  # of rotary positions
    dtype: str | None = None  # autocast; None: as the run
    attention: str | None = None  # backend; None: as the run
    gradient: tuple[GradientChange, ...] = ()

    def set(self, term: str, **changes: Any) -> "Plan":
        """A plan with ``changes``; an error when an earlier term of the arm set the same thing."""
        defaults = {field.name: field.default for field in fields(self)}
        for name in changes:
            if getattr(self, name) != defaults[name]:
                raise UsageError(f"arm term {term}: another term of this arm already sets {name}; keep one of them")
        plan = replace(self, **changes)
        replacing = ("demote", "demote_latent", "repromote", "reencode")
        grids = [name for name in replacing if getattr(plan, name) not in (None, False)]
        if len(grids) > 1:
            raise UsageError(f"arm term {term}: {' and '.join(grids)} both replace the clean latent; keep one of them")
        return plan

    def then(self, change: GradientChange) -> "Plan":
        """A plan whose gradient goes through ``change`` after the changes it has."""
        return replace(self, gradient=(*self.gradient, change))


NATIVE = Plan()
