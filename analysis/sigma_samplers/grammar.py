"""Samplers of sigma as text: ``base``, ``shift``, or ``base+shift``, each with a range ``@lo[:hi]``."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from analysis import sigma_range
from analysis.errors import UsageError
from analysis.sigma_samplers.cosmap import CosMap
from analysis.sigma_samplers.distribution import Distribution, Uniform
from analysis.sigma_samplers.logit_normal import LogitNormal
from analysis.sigma_samplers.mode import LARGEST_SCALE, LEAST_SCALE, Mode
from analysis.sigma_samplers.sampler import SigmaSampler

Shift = float | Literal["flux"]

KNOWN = (
    "uniform, sigmoid:scale, logit-normal:mean,std, mode[:scale], cosmap, shift:s, flux; "
    "one of the first five may be followed by +shift:s or +flux, and all by @lo or @lo:hi"
)


def parse(text: str) -> SigmaSampler:
    """The sampler that ``text`` describes; a UsageError says what was given and what is allowed."""
    body, at, window = text.strip().partition("@")
    first, plus, second = body.partition("+")
    base, shift = _base(text, first), _shift(text, second if plus else first)
    if shift is not None and not plus:
        base = Uniform()
    if base is None or (plus and shift is None):
        raise UsageError(f"sigma sampler '{text}': '{body}' is not one; known: {KNOWN}")
    lo, hi = sigma_range.parse(window, f"sigma sampler '{text}': range") if at else (0.0, 1.0)
    sampler = SigmaSampler(text.strip(), base, 1.0 if shift is None else shift, lo, hi)
    if not sampler.needs_tokens:
        sampler.quantile(np.ones(1))  # an empty range is found now
    return sampler


def _base(text: str, term: str) -> Distribution | None:
    name, given, argument = term.partition(":")
    if name not in BASES:
        return None
    make, default, bounds = BASES[name]
    if not bounds and given:
        raise UsageError(f"sigma sampler '{text}': {name} got '{argument}'; it takes no number")
    return make(*(_numbers(text, name, argument, bounds) if given else default))


def _shift(text: str, term: str) -> Shift | None:
    if term == "flux":
        return "flux"
    name, _, argument = term.partition(":")
    return _numbers(text, name, argument, SHIFT_BOUNDS)[0] if name == "shift" else None


Bounds = tuple[tuple[str, float, float], ...]  # of each number: its name, and the least and largest allowed

BASES: dict[str, tuple[Callable[..., Distribution], tuple[float, ...], Bounds]] = {
    "uniform": (Uniform, (), ()),
    "sigmoid": (lambda scale: LogitNormal(0.0, scale), (1.0,), (("scale", 0.01, 100.0),)),
    "logit-normal": (LogitNormal, (0.0, 1.0), (("mean", -20.0, 20.0), ("std", 0.01, 100.0))),
    "mode": (Mode, (1.29,), (("scale", LEAST_SCALE, LARGEST_SCALE),)),
    "cosmap": (CosMap, (), ()),
}
SHIFT_BOUNDS: Bounds = (("s", 0.001, 1000.0),)


def _numbers(text: str, name: str, argument: str, bounds: Bounds) -> list[float]:
    takes = " and ".join(f"{least:.5g} <= {what} <= {largest:.5g}" for what, least, largest in bounds)
    try:
        numbers = [float(number) for number in argument.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(bounds) or not all(
        least <= number <= largest  # not a number is outside
        for number, (_, least, largest) in zip(numbers, bounds, strict=True)
    ):
        form = ",".join(what for what, _, _ in bounds)
        raise UsageError(f"sigma sampler '{text}': {name} got '{argument}'; it takes {name}:{form} with {takes}")
    return numbers
