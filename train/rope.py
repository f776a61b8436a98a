"""How rotary positions are stretched on a smaller grid (docs/method.md, section 3).

A treatment asks for a ``Stretch``; with the two grids and sigma known it becomes a ``Rope``: one
factor per axis and how it is spread over the frequency bands. A family turns that into cosines and
sines. Sources: position interpolation (arXiv:2306.15595), YaRN's bands (arXiv:2309.00071; its
attention temperature is left out, since it answers longer contexts, not shorter ones).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

KINDS = ("pi", "yarn", "yarn-sigma")


@dataclass(frozen=True)
class Stretch:
    """What an arm asks for. factor: the stretch, or None for native grid / this grid."""

    kind: str | None = None
    factor: float | None = None


@dataclass(frozen=True)
class Rope:
    """Resolved: ``factors`` (rows, columns) multiply positions; 1 leaves them alone.

    banded: False, every frequency alike; True, bands that turn less than once over the
    ``tokens`` of the native grid are stretched fully, the fastest band not at all.
    strength: 0 is native, 1 the whole stretch.
    """

    factors: tuple[float, float] = (1.0, 1.0)
    tokens: tuple[int, int] = (1, 1)
    banded: bool = False
    strength: float = 1.0

    @property
    def is_native(self) -> bool:
        return self.strength == 0 or self.factors == (1.0, 1.0)


NATIVE_STRETCH = Stretch()
NATIVE = Rope()


def resolve(stretch: Stretch, native: tuple[int, int], grid: tuple[int, int], sigma: float) -> Rope:
    """The rope for a step on ``grid`` tokens (rows, columns) whose native grid is ``native``."""
    if stretch.kind is None:
        return NATIVE
    factors = tuple(n / g if stretch.factor is None else stretch.factor for n, g in zip(native, grid, strict=True))
    strength = sigma if stretch.kind == "yarn-sigma" else 1.0
    return Rope((factors[0], factors[1]), native, stretch.kind != "pi", strength)


def band_factors(rope: Rope, axis: int, frequencies: Tensor) -> Tensor:
    """Factor of each frequency [F] (radians a token, float64) along ``axis`` (0 rows, 1 columns): [F], 1 is native.

    YaRN's ramp between one turn over the native grid and the turns of the fastest band.
    """
    full = rope.factors[axis] - 1.0
    share = torch.ones_like(frequencies)
    if rope.banded:
        turns = rope.tokens[axis] * frequencies / (2 * torch.pi)
        fastest = turns.max()
        if fastest > 1:
            share = 1 - ((turns - 1) / (fastest - 1)).clamp(0, 1)
    return 1 + rope.strength * full * share
