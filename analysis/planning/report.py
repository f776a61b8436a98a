"""A plan as text, and as one JSON object."""

import math
import textwrap
from dataclasses import asdict
from typing import Any

from analysis.planning.pilot import Cell, Option, Planned
from analysis.planning.predict import LARGEST
from analysis.report import POPULATIONS, WIDTH, counted, of_images, rule_in_words
from analysis.verdict import LEVEL

HEADER = "  sigma   now         images x draws  gradients  {fewest:<20}  detects"

NO_FORECAST = "No unresolved verdict has a forecast: take a larger pilot."


def as_text(planned: Planned) -> str:
    """The question, a table for each arm, what a whole sweep takes, and what the columns mean."""
    asked = planned.asked
    images = of_images(planned.images.values())
    opening = [
        f"Pilot: {images} x {counted(planned.draws, 'draw')}; against {asked.baseline}, sum over blocks.",
        f"{rule_in_words(asked.rule, asked.margin, asked.control or '', asked.baseline)} (rule {asked.rule}, "
        f"margin {asked.margin:g})",
        f"Population: {POPULATIONS[asked.population]}.",
    ]
    if planned.unfinished:
        listed = ", ".join(f"{sigma:g}" for sigma in planned.unfinished)
        opening.append(
            f"The pilot is unfinished: of sigma {listed} nothing is told, nor counted below. The command that made it "
            "goes on with it."
        )
    if planned.level != LEVEL:
        opening.append(
            f"The pilot stopped by what it saw: its verdicts are at {100 * planned.level:.3g} %, and forecasts are of "
            f"a sweep of fixed size, whose level is {100 * LEVEL:g} %."
        )
    arms = list(dict.fromkeys(cell.arm for cell in planned.cells))
    tables = ["\n".join(_table(planned, arm)) for arm in arms]
    return "\n\n".join(["\n".join(map(_filled, opening)), *tables, _legend(planned), _sweep(planned)])


def _table(planned: Planned, arm: str) -> list[str]:
    few = "fewest" if planned.asked.population == "images" else ""
    rows = [_row(cell) for cell in planned.cells if cell.arm == arm]
    return [arm, HEADER.format(fewest=few), *rows]


def _row(cell: Cell) -> str:
    told = f"{cell.smallest_bias:.3f}" if math.isfinite(cell.smallest_bias) else "-"
    first, best = cell.option, fewest(cell)
    none = "-" if cell.settled else "?"
    size = f"{first.images:>6} x {first.draws:<5}  {first.gradients:>9,}" if first else f"{none:>6}{'':>10}  {none:>9}"
    other = "" if best is None or best == first else f"{best.images} x {best.draws} = {best.gradients:,}"
    return f"  {cell.sigma:<6g}  {cell.verdict:<10}  {size}  {other:<20}  {told:>7}"


def fewest(cell: Cell) -> Option | None:
    """The option of fewest gradients."""
    options = [option for option in (cell.option, *cell.others) if option is not None]
    return min(options, key=lambda option: option.gradients, default=None)


def _legend(planned: Planned) -> str:
    unit = "images" if planned.asked.population == "images" else "draws"
    chance = f"{100 * planned.asked.chance:g} %"
    entries = {
        unit: f"with so many the verdict is settled in {chance} of what may be true after this pilot, whose own {unit} "
        f"are among them; '-': nothing more to settle; '?': more than {LARGEST:g} times the pilot, or it says too "
        "little (take a larger pilot)",
        "gradients": "of the arm and the baseline at that sigma, all over again",
        "detects": f"the smallest relative bias that the pilot's size tells from none with a chance of {chance}; "
        "along the noisiest direction it takes a larger one; '-': "
        f"the {planned.asked.baseline} mean gradient is not told from zero",
    }
    if planned.asked.population == "images":
        entries["fewest"] = "the same with other draws, where that takes fewer gradients"
    lines = [textwrap.fill(f"{name:<11}  {text}", WIDTH, subsequent_indent=" " * 13) for name, text in entries.items()]
    return "\n".join(lines)


def _sweep(planned: Planned) -> str:
    whole = sweep(planned)
    left = whole["without_forecast"]
    if whole["images"] is None:
        if left:
            return _filled(NO_FORECAST)
        if not any(cell.active for cell in planned.cells):
            return _filled(
                f"Every arm makes the {planned.asked.baseline} step at every sigma: there is nothing to settle."
            )
        return _filled("Every verdict is settled: nothing more to measure.")
    size = f"{whole['images']} images x {counted(whole['draws'], 'draw')}"
    lines = [
        f"One sweep for all of them: {size}, {whole['gradients']:,} gradients, {duration(whole['seconds'])} in one "
        f"process at the speed of the pilot; each sigma with its own number: {duration(whole['seconds_by_sigma'])}."
    ]
    if left:
        there = f" at {counted(planned.draws, 'draw')}" * (planned.asked.population == "images")
        lines.append(f"Unresolved verdicts without a forecast{there}, which are not counted: {left}.")
    return "\n".join(map(_filled, lines))


def sweep(planned: Planned) -> dict[str, Any]:
    """What it takes to settle all cells that have a forecast, at the pilot's draws: one size, or each sigma its own."""
    unresolved = [cell for cell in planned.cells if not cell.settled]
    known = [(cell.sigma, cell.option) for cell in unresolved if cell.option is not None]
    without = {"without_forecast": len(unresolved) - len(known)}
    if not known:
        return dict.fromkeys(("images", "draws", "gradients", "seconds", "seconds_by_sigma")) | without
    arms = len(planned.images) + sum(cell.active for cell in planned.cells)
    images, draws = max(option.images for _, option in known), max(option.draws for _, option in known)
    samples = {sigma: n * planned.draws for sigma, n in planned.images.items()}
    for sigma, option in known:
        samples[sigma] = max(samples[sigma], option.images * option.draws)
    return {
        "images": images,
        "draws": draws,
        "gradients": images * draws * arms,
        "seconds": images * draws * sum(planned.seconds_of_gradient.values()),
        "seconds_by_sigma": sum(samples[sigma] * each for sigma, each in planned.seconds_of_gradient.items()),
        **without,
    }


def as_json(planned: Planned) -> dict[str, Any]:
    """For machines; what is not told is None."""
    asked = planned.asked
    return {
        "rule": asked.rule,
        "margin": asked.margin,
        "baseline": asked.baseline,
        "population": asked.population,
        "control": asked.control,
        "chance": asked.chance,
        "pilot": {
            "images": list(planned.images.values()),
            "draws": planned.draws,
            "unfinished": list(planned.unfinished),
        },
        "cells": [_cell(cell) for cell in planned.cells],
        "sweep": sweep(planned),
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "sigma": cell.sigma,
        "arm": cell.arm,
        "verdict": cell.verdict,
        **{name: getattr(cell.option, name, None) for name in ("images", "draws", "gradients", "seconds")},
        "other_draws": [asdict(option) for option in cell.others],
        "smallest_bias": cell.smallest_bias if math.isfinite(cell.smallest_bias) else None,
    }


def duration(seconds: float) -> str:
    """As a person says it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
