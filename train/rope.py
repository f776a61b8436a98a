"""How rotary positions are stretched: the data that a positions treatment hands to a family."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rope:
    """``scale`` multiplies the position of every token (1: as the model was trained)."""

    scale: float = 1.0


NATIVE = Rope()
