"""How often is a bias of the size that `probes plan` calls detected told from none?

    told = simulate(power_laws(), repeats=400)
    told["1/k", "leading"]

In every world a measurement says what its size detects; the bias is planted in that size, and as many images are
measured anew. `python -m analysis.calibration --detects` prints what docs/method.md says of it.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from analysis import verdict
from analysis.base.jackknife import degrees_of_freedom
from analysis.calibration.cases import Case, Spectra
from analysis.calibration.forecasts import CHANCE, DIRECTIONS
from analysis.calibration.simulate import first
from analysis.planning.detect import smallest_square
from analysis.synthetic import sample

IMAGES = (8, 16, 24)


def simulate(spectra: Spectra, directions: Sequence[str] = DIRECTIONS, *, repeats: int) -> dict[tuple[str, str], float]:
    """By spectrum and direction of the bias, the share of measurements that tell it from none."""
    told = {}
    for (name, spectrum), direction in product(spectra.items(), directions):
        cases = [Case("images", spectrum, n, direction=direction) for n in IMAGES]
        told[name, direction] = float(np.mean([_told(case, repeats, seed) for seed, case in enumerate(cases)]))
    return told


def _told(case: Case, repeats: int, seed: int) -> float:
    """Each of ``repeats`` measurements has its own smallest bias; the median of them is planted."""
    generator = np.random.default_rng(seed)
    part = first(sample(case.world(), generator, repeats=repeats, images=case.images).gradients, case.images)
    squares = smallest_square(part.bias_curvature, part.bias_pairs, degrees_of_freedom(part.bias), CHANCE)
    planted = case.world().with_bias(float(np.sqrt(np.median(squares))))
    again = first(sample(planted, generator, repeats=repeats, images=case.images).gradients, case.images)
    return float((verdict.resolved_p(again.bias) < verdict.LEVEL).mean())


def table(told: dict[tuple[str, str], float]) -> str:
    """Markdown: a row for each spectrum, a column for each direction of the bias."""
    directions = list(dict.fromkeys(direction for _, direction in told))
    lines = [f"| noise | {' | '.join(directions)} |", "|---" * (1 + len(directions)) + "|"]
    for name in dict.fromkeys(name for name, _ in told):
        rates = " | ".join(f"{100 * told[name, direction]:.0f} %" for direction in directions)
        lines.append(f"| {name} | {rates} |")
    return "\n".join(lines)
