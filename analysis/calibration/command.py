"""``analysis calibrate``: does the method keep its promises at this store's design, and what could it settle?"""

import json
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from tqdm import tqdm

from analysis import store
from analysis.calibration.store_worlds import BIAS_FACTORS, StoreCell, parameters, store_cell
from analysis.calibration.suite import SHARE_OF_REPEATS, Calibration, Rate, calibrated, worlds
from analysis.errors import UsageError
from analysis.report import POPULATIONS
from analysis.safety import FEWEST_DRAWS, FEWEST_IMAGES
from analysis.steps import at_step

WIDTH = 80
COVERAGE = {
    "relative_bias_squared": "relative bias",
    "gain": "gain",
    "norm_ratio_squared": "norm ratio",
    "one_minus_cosine": "1 - cosine",
    "turn_squared": "turn",
    "noise_scale": "noise scale",
}
PROMISE = (
    "Promised: each false verdict at most 6 %, coverage at least 93 %; not for heavy tails and a population of images "
    "in rule gap (safe), rule budget (harmful) and the noise scale, of which analysis safety warns. The worst of "
    "several rates is a little too high by chance alone. A figure without an interval counts as covered."
)


@dataclass(frozen=True)
class Asked:
    """The options of ``analysis calibrate``; ``sigma`` None is the middle done cell, ``metric`` None the first."""

    store: Path
    repeats: int
    margin: float
    sigma: float | None
    metric: str | None
    baseline: str
    step: int | None = None


def print_calibration(asked: Asked, *, json_object: bool) -> None:
    """Run the suite with a bar on standard error and print it. UsageError for what the store lacks."""
    if not (np.isfinite(asked.margin) and asked.margin > 0.0):
        raise UsageError(f"margin {asked.margin:g} is not a positive number")
    dataset = at_step(store.open_store(asked.store, contents=False), asked.step)
    cell = store_cell(dataset, sigma=asked.sigma, metric=asked.metric, baseline=asked.baseline)
    populations, lacking = supported(dataset, cell)
    found: dict[str, Calibration] = {}
    total = sum(worlds(cell, population, asked.margin) for population in populations)
    with tqdm(total=total, unit="world", disable=None, dynamic_ncols=True) as bar:
        for population in populations:
            found[population] = calibrated(
                cell, population, margin=asked.margin, repeats=asked.repeats, tell=lambda name: _step(bar, name)
            )
    if json_object:
        print(json.dumps(as_json(asked, cell, found, lacking), indent=1, allow_nan=False))
    else:
        print(as_text(asked, cell, found, lacking))


def supported(dataset: xr.Dataset, cell: StoreCell) -> tuple[list[str], list[str]]:
    """Populations that this store can answer for, and why not the others. UsageError if none."""
    populations, lacking = [], []
    if cell.images < FEWEST_IMAGES:
        raise UsageError(
            f"sigma {cell.sigma:g} holds {cell.images} images; calibration needs {FEWEST_IMAGES} or more for a spectrum"
        )
    populations.append("images")
    if cell.draws < FEWEST_DRAWS:
        lacking.append(f"population corpus needs {FEWEST_DRAWS} draws per image and this store has {cell.draws}")
    elif "gram_cross" not in dataset:
        lacking.append("population corpus needs gram_cross, which this store was written without")
    else:
        populations.append("corpus")
    if cell.draws < 2:
        lacking.append("rule gap needs 2 draws per image and this store has 1")
    return populations, lacking


def as_json(asked: Asked, cell: StoreCell, found: dict[str, Calibration], lacking: list[str]) -> dict[str, Any]:
    """One object: sizes and coverage by rate and tails, power by arm, rule and true bias."""
    return {
        "store": str(asked.store),
        "images": cell.images,
        "draws": cell.draws,
        "sigma": cell.sigma,
        "metric": asked.metric,
        "baseline": cell.baseline,
        "margin": asked.margin,
        "parameters": parameters(cell.images),
        "repeats": asked.repeats,
        "repeats_of_power": max(1, asked.repeats // SHARE_OF_REPEATS),
        "populations": {
            population: {
                "rates": [{"rate": name, "tails": tails, **asdict(rate)} for (name, tails), rate in part.rates.items()],
                "power": [{**asdict(row), "settled": row.settled} for row in part.power],
                "skipped": part.skipped,
            }
            for population, part in found.items()
        },
        "lacking": lacking,
    }


def as_text(asked: Asked, cell: StoreCell, found: dict[str, Calibration], lacking: list[str]) -> str:
    """Sizes, coverage and power, one section a population."""
    opening = (
        f"Planted worlds of {parameters(cell.images)} parameters with the spectrum of {cell.baseline} at sigma "
        f"{cell.sigma:g}, measured as this store was: {cell.images} images x {cell.draws} draws, {asked.repeats} "
        f"repeats a world, margin {asked.margin:g} (rule relative; the other rules' are put where the truth is)."
    )
    parts = [_filled(opening)]
    for population, part in found.items():
        title = _filled(f"Population: {POPULATIONS[population]}")
        parts += [title, _rates(part), _power(part, asked)]
    parts.append(_filled(PROMISE))
    if lacking:
        parts.append("\n".join(_filled(f"Left out: {line}.") for line in lacking))
    return "\n\n".join(parts)


def _rates(part: Calibration) -> str:
    """Worst rate with its Monte-Carlo error, and the mean over worlds, for both kinds of tails."""
    rules = [name.removeprefix("safe_") for name, tails in part.rates if name.startswith("safe_") and tails == "light"]
    names = {f"{verdict}_{rule}": f"false {verdict}, {rule}" for rule in rules for verdict in ("safe", "harmful")}
    names |= {f"coverage_{figure}": f"coverage, {shown}" for figure, shown in COVERAGE.items()}
    lines = [f"  {'%, worst (mean) of worlds':<26} {'light tails':<22} heavy tails"]
    for name, shown in names.items():
        cells = [_rate(part.rates[name, tails]) for tails in ("light", "heavy")]
        lines.append(f"  {shown:<26} {cells[0]:<22} {cells[1]}")
    return "\n".join(lines)


def _rate(rate: Rate) -> str:
    return f"{100 * rate.worst:5.1f} +- {100 * rate.error:.1f} ({100 * rate.mean:.1f})"


def _power(part: Calibration, asked: Asked) -> str:
    """Share of verdicts that are settled, arm by arm and rule by rule."""
    biases = ", ".join(f"{factor * asked.margin:g}" for factor in BIAS_FACTORS)
    about = (
        f"Power: how often a verdict is reached, in %, if the true relative bias of an arm as noisy as this one is "
        f"here were {biases} ({max(1, asked.repeats // SHARE_OF_REPEATS)} repeats)."
    )
    head = f"  {'arm':<22} {'rule':<9}" + "".join(f"{factor * asked.margin:>12g}" for factor in BIAS_FACTORS)
    lines = [_filled(about), head]
    by_row: dict[tuple[str, str], list[str]] = {}
    for row in part.power:
        shown = f"{100 * row.settled:.0f} +- {100 * row.error:.0f}"
        by_row.setdefault((row.arm, row.rule), []).append(f"{shown:>12}")
    lines += [f"  {arm:<22} {rule:<9}" + "".join(cells) for (arm, rule), cells in by_row.items()]
    lines += [_filled(f"  {reason}.") for reason in part.skipped]
    return "\n".join(lines)


def _step(bar: "tqdm[Any]", name: str) -> None:
    bar.set_postfix_str(name, refresh=False)
    bar.update()


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
