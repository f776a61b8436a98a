"""The synthetic suite at the design and the spectrum of one store: sizes and coverage at the margin, power off it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from analysis.calibration.cases import Case
from analysis.calibration.power import power
from analysis.calibration.simulate import simulate
from analysis.calibration.store_worlds import BIAS_FACTORS, MeasuredCase, StoreCell, power_cases, size_cases
from analysis.errors import UsageError

SHARE_OF_REPEATS = 4
"""Power is told with a quarter of the repeats: a share near one half needs no finer error."""


@dataclass(frozen=True)
class Rate:
    """One rate over ``repeats``: worst and mean over worlds, and the Monte-Carlo error of the worst."""

    worst: float
    mean: float
    error: float
    world: str


@dataclass(frozen=True)
class Settled:
    """How often one arm's verdict by one rule is ``safe`` or ``harmful`` at a true bias of ``factor`` x margin."""

    arm: str
    rule: str
    factor: float
    safe: float
    harmful: float
    error: float

    @property
    def settled(self) -> float:
        return self.safe + self.harmful


@dataclass(frozen=True)
class Calibration:
    """Of one population: rates by (name, tails), with names of ``simulate``, and power by arm and rule."""

    rates: dict[tuple[str, str], Rate]
    power: list[Settled]
    skipped: list[str]


def calibrated(
    cell: StoreCell, population: str, *, margin: float, repeats: int, tell: Callable[[str], None]
) -> Calibration:
    """Run the suite; ``tell`` is called with the name of each world when it is done."""
    sizes = []
    for seed, case in enumerate(size_cases(cell, population, margin)):
        sizes.append((case, simulate(case, repeats=repeats, seed=seed)))
        tell(case.name)
    settled, skipped = [], []
    fewer = max(1, repeats // SHARE_OF_REPEATS)
    for arm in cell.treated:
        try:
            cases = list(power_cases(cell, population, margin, arm))
        except UsageError as error:
            skipped.append(str(error))
            for factor in BIAS_FACTORS:
                tell(f"{arm} {factor:g}")
            continue
        for seed, (factor, case) in enumerate(zip(BIAS_FACTORS, cases, strict=True)):
            settled += _settled(case, arm, factor, fewer, seed)
            tell(case.name)
    return Calibration(_worst(sizes, repeats), settled, list(dict.fromkeys(skipped)))


def worlds(cell: StoreCell, population: str, margin: float) -> int:
    """How many worlds ``calibrated`` runs."""
    return len(size_cases(cell, population, margin)) + len(BIAS_FACTORS) * len(cell.treated)


def monte_carlo_error(rate: float, repeats: int) -> float:
    """Standard error of a rate; not zero where none or all of the repeats count (Agresti and Coull 1998)."""
    shrunk = (rate * repeats + 2.0) / (repeats + 4.0)
    return float(np.sqrt(shrunk * (1.0 - shrunk) / (repeats + 4.0)))


def _worst(rows: list[tuple[Case, dict[str, float]]], repeats: int) -> dict[tuple[str, str], Rate]:
    """Lowest coverage and highest of every other rate, for light and heavy tails apart."""
    out = {}
    for name in dict.fromkeys(name for _, found in rows for name in found):
        for tails, heavy in (("light", False), ("heavy", True)):
            held = [(found[name], case.name) for case, found in rows if name in found and (case.tail > 0.0) == heavy]
            worst, where = min(held) if name.startswith("coverage") else max(held)
            mean = float(np.mean([rate for rate, _ in held]))
            out[name, tails] = Rate(worst, mean, monte_carlo_error(worst, repeats), where)
    return out


def _settled(case: MeasuredCase, arm: str, factor: float, repeats: int, seed: int) -> list[Settled]:
    found = power(case, repeats=repeats, seed=seed)
    rules = [name.removeprefix("safe_") for name in found if name.startswith("safe_")]
    pairs = [(rule, found[f"safe_{rule}"], found[f"harmful_{rule}"]) for rule in rules]
    return [
        Settled(arm, rule, factor, safe, harmful, monte_carlo_error(safe + harmful, repeats))
        for rule, safe, harmful in pairs
    ]
