"""How often does the sweep that a plan asks for have a verdict?

    rates = simulate(pilots=(6, 8, 16), repeats=15)
    rates[0.0]                                 # of each tried forecast in worlds without bias, whether it came true

A pilot in a planted world that leaves its verdict open asks for so many images; as many are then measured, the pilot's
among them. `python -m analysis.calibration --forecasts` prints what docs/method.md says of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from analysis import moments, planning, verdict
from analysis.calibration.cases import HEAVY, MARGIN, Case, power_laws
from analysis.calibration.simulate import first
from analysis.synthetic import sample

CHANCE = 0.8
MOST = 16.0
"""Forecasts of more than MOST times the pilot are not tried: they would take too long."""
RATIOS = (0.0, 0.5, 0.8, 1.25, 1.5, 2.0)
"""True biases over the margin, from none to twice as large, and some so near it that a verdict takes luck."""
DIRECTIONS = ("leading", "across", "mixed")
TAILS = (0.0, HEAVY)
RESOLUTIONS = (1.0, 3.0)
"""Of the bias at the margin, by the pilot."""


def simulate(
    pilots: Sequence[int] = (6, 8, 16),
    directions: Sequence[str] = DIRECTIONS,
    tails: Sequence[float] = TAILS,
    resolutions: Sequence[float] = RESOLUTIONS,
    *,
    repeats: int,
) -> dict[float, list[bool]]:
    """By true bias over the margin: whether each tried forecast came true; ``repeats`` pilots of each world."""
    came_true: dict[float, list[bool]] = {ratio: [] for ratio in RATIOS}
    grid = product(pilots, power_laws().values(), directions, tails, resolutions, RATIOS)
    for seed, (pilot, spectrum, direction, tail, resolution, ratio) in enumerate(grid):
        base = Case("images", spectrum, pilot, 1, direction, tail, resolution, 8.0)
        came_true[ratio] += settled(replace(base, relative_bias=ratio * MARGIN), repeats, seed)
    return came_true


def settled(case: Case, repeats: int, seed: int) -> Iterator[bool]:
    """Whether the sweep that an open pilot asks for has a verdict; the pilot's images are the first of its own."""
    drawn = sample(case.world(), np.random.default_rng(seed), repeats=repeats, images=int(case.images * MOST)).gradients
    pilot = first(drawn, case.images)
    factors = outlook(pilot, MARGIN).factor(CHANCE)[:, 0]
    for at in np.flatnonzero((_decided(pilot) == verdict.UNRESOLVED) & (factors <= MOST)):
        n = int(np.ceil(case.images * factors[at] - 1e-6))
        yield bool(_decided(first(drawn[at : at + 1], n))[0] != verdict.UNRESOLVED)


def outlook(part: moments.Moments, margin: float) -> planning.Outlook:
    """What rule ``relative`` may come to, for a population of images."""
    return planning.outlook(part, verdict.relative(part, margin), planning.Asked(margin))


def _decided(part: moments.Moments) -> np.ndarray:
    return verdict.decide(verdict.relative(part, MARGIN), part.baseline).verdict[:, 0]


def table(came_true: dict[float, list[bool]]) -> str:
    """Markdown: a row for each true bias, and all of them."""
    rows = [(f"{ratio:g} margins", found) for ratio, found in came_true.items()]
    rows.append(("all", [one for _, found in rows for one in found]))
    lines = [f"| true bias | forecasts tried | came true (asked for: {100 * CHANCE:g} %) |", "|---|---|---|"]
    lines += [f"| {name} | {len(found):,} | {100 * np.mean(found):.0f} % |" for name, found in rows if found]
    return "\n".join(lines)
