"""The answer as text: a table of sigma x arm, windows in words, and what each word means.

It is plain ASCII but for the store's own names, at most 80 columns wide where those names allow, and reads the same
when it is piped; ``colour`` only paints the verdicts.
"""

import math
import textwrap
from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from analysis.answer import Answer
from analysis.gate import Decision
from analysis.schema import TOTAL
from analysis.verdict import HARMFUL, INACTIVE, SAFE, UNRESOLVED
from analysis.windows import Window

WIDTH = 80
COLOURS = {SAFE: "\033[32m", HARMFUL: "\033[31m", UNRESOLVED: "\033[33m", INACTIVE: "\033[2m"}
PLAIN = "\033[0m"
HEADER = "  sigma   relative bias  95 % interval    cosine  norm ratio  verdict     {more}"
POPULATIONS = {
    "images": "images like these (chance lies in which images, and in their noise)",
    "corpus": "exactly this corpus (chance lies in the noise draws alone)",
}

CLAIM = (
    "With 95 % confidence an arm is safe (or harmful) at every sigma listed for it: that holds for the whole list, "
    "corrected by Holm's rule, so a sigma may be safe in the table and not here. Nothing is said between grid "
    "points."
)


def as_text(answer: Answer, *, colour: bool = False) -> str:
    """The whole report, one string without a final newline."""
    parts = [question(answer)]
    parts += [_table(answer, str(arm), colour) for arm in answer.assessed["arm"].values]
    parts += [legend(answer), _windows(answer), _worst_blocks(answer)]
    if answer.warnings:
        parts.append("\n".join(filled(f"Warning: {warning}.") for warning in answer.warnings))
    if answer.decision is not None:
        parts.append(gate_in_words(answer.decision, colour))
    return "\n\n".join(parts)


def signed_root(square: float) -> float:
    """Root of a square that estimation may have left negative: -sqrt(-square) below zero, NaN for NaN."""
    return math.copysign(math.sqrt(abs(square)), square)


def rule_in_words(rule: str, margin: float, control: str, baseline: str) -> str:
    """The question that a rule asks of a cell."""
    if rule == "relative":
        return f"Is the bias at most {100 * margin:g} % of the {baseline} mean gradient's length?"
    if rule == "angle":
        degrees = math.degrees(math.acos(max(-1.0, 1.0 - margin)))
        return f"Is 1 - cosine of the two mean gradients at most {margin:g} (a turn of {degrees:.1f} degrees)?"
    if rule == "budget":
        return f"Would it take more than {margin:g} samples (steps x batch) to notice the bias under sampling noise?"
    return (
        f"Is the images' mean squared bias, less that of {control}, at most {margin:g} of the squared {baseline} mean?"
    )


def question(answer: Answer, more: str = "") -> str:
    """What is asked of what; ``more`` stands after the number of sigmas."""
    attributes = answer.assessed.attrs
    sizes = answer.assessed.sizes
    others = [name for name in answer.assessed["metric"].values.tolist() if name != answer.metric]
    asked = rule_in_words(*(attributes[name] for name in ("rule", "margin", "control", "baseline")))
    images = of_images(answer.assessed["images_used"].values)
    lines = [
        f"Single-step gradients of treated and {attributes['baseline']} training steps: {sizes['sigma']} sigmas{more}, "
        f"{sizes['block'] - 1} blocks, {images} x {counted(answer.draws, 'draw')}, metric {answer.metric}"
        + (f" (others: --metric {', '.join(others)})." if others else "."),
        f"{asked} (rule {attributes['rule']}, margin {attributes['margin']:g})",
        f"Population: {POPULATIONS[attributes['population']]}.",
        *images_used(answer.assessed),
    ]
    return "\n".join(filled(line) for line in lines)


def of_images(used: Iterable[int]) -> str:
    """``24 images``, or the fewest and the most of a sigma."""
    numbers = sorted(set(used))
    return counted(numbers[0], "image") if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]} images"


def counted(number: int, thing: str) -> str:
    """``1 draw``, ``2 draws``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def images_used(assessed: xr.Dataset) -> Iterator[str]:
    """A line that says how many images each sigma has; none where all have the same."""
    used = assessed["images_used"].values
    numbers = np.unique(used).tolist()
    if len(numbers) > 1:
        at = [", ".join(f"{sigma:g}" for sigma in assessed["sigma"].values[used == number]) for number in numbers]
        yield (
            "Images: "
            + "; ".join(f"{number} at sigma {where}" for number, where in zip(numbers, at, strict=True))
            + "."
        )


def _table(answer: Answer, arm: str, colour: bool) -> str:
    return "\n".join([*table_head(answer, arm), *rows(answer, arm, colour)])


def table_head(answer: Answer, arm: str) -> list[str]:
    """What stands over an arm's rows."""
    images = answer.assessed.attrs["population"] == "images"
    return [f"{arm} (sum over blocks)", HEADER.format(more="images" if images else "draws")]


def rows(answer: Answer, arm: str, colour: bool) -> list[str]:
    """A line for each sigma of an arm, in the sum over blocks."""
    cells = answer.assessed.sel(metric=answer.metric, arm=arm, block=TOTAL)
    needed_name = "images_needed" if answer.assessed.attrs["population"] == "images" else "draws_needed"
    lines = []
    for index in range(cells.sizes["sigma"]):
        row = cells.isel(sigma=index)
        verdict = str(row["verdict"].item())
        painted = f"{verdict:<10}"
        if colour:
            painted = f"{COLOURS[verdict]}{painted}{PLAIN}"
        lines.append(
            f"  {float(row['sigma']):<6g}  {_figure(signed_root(row['relative_bias_squared'].item()), 13, 3)}  "
            f"{_interval(row):<15}  {_figure(row['cosine'].item(), 6, 4)}  "
            f"{_figure(row['norm_ratio'].item(), 10, 3)}  {painted}  {_figure(row[needed_name].item(), 6, 0)}".rstrip()
        )
    return lines


def _interval(row: xr.Dataset) -> str:
    lower, upper = signed_root(row["lower"].item()), signed_root(row["upper"].item())
    return f"{lower:6.3f} to {upper:.3f}" if math.isfinite(lower) and math.isfinite(upper) else "     -"


def _figure(value: float, width: int, digits: int) -> str:
    """A right-aligned number; "-" for NaN, nothing in a column of whole numbers."""
    if math.isfinite(value):
        return f"{value:{width}.{digits}f}"
    return " " * width if digits == 0 else f"{'-':>{width}}"


def legend(answer: Answer) -> str:
    """What the words of the table mean."""
    unit = "images" if answer.assessed.attrs["population"] == "images" else "draws per image"
    baseline = answer.assessed.attrs["baseline"]
    entries = {
        "relative bias": "length of the difference of the two mean gradients, over that of the "
        f"{baseline} one; the root of "
        "an estimated square, so that -x stands for a square of -x*x: no bias seen",
        "safe": "within the margin; harmful: beyond it; each shown at one-sided "
        f"{100 * answer.assessed.attrs['level']:.3g} %",
        "unresolved": f"the data allow both; last column: {unit} that would settle it, as it looks now",
        "inactive": f"the arm makes the {baseline} step there, to the bit: nothing is said about its treatment",
        "-": f"no figure: the {baseline} mean gradient is not told from zero there",
    }
    if not (answer.assessed["verdict"] == INACTIVE).any():
        del entries["inactive"]
    return "\n".join(
        textwrap.fill(f"{name:<13}  {text}", WIDTH, subsequent_indent=" " * 15) for name, text in entries.items()
    )


def _windows(answer: Answer) -> str:
    lines = ["Windows of sigma"]
    for arm in answer.assessed["arm"].values.tolist():
        total = f"{ranges(answer.safe, arm, 'safe')}; {ranges(answer.harmful, arm, 'harmful')}"
        lines.append(f"  {arm}")
        lines.append(filled(f"sum over blocks: {total}", indent=4))
        lines.append(filled(f"in every block: {ranges(answer.safe_in_every_block, arm, 'safe')}", indent=4))
    return "\n".join([*lines, filled(CLAIM)])


def ranges(found: list[Window], arm: str, verdict: str) -> str:
    """Where an arm has windows, in words."""
    own = [_range(window) for window in found if window.arm == arm]
    return f"{verdict} at {', '.join(own)}" if own else f"nowhere shown to be {verdict}"


def _range(window: Window) -> str:
    if len(window.sigmas) == 1:
        return f"{window.lo:g}"
    return f"{window.lo:g} to {window.hi:g} ({len(window.sigmas)} sigmas)"


def _worst_blocks(answer: Answer) -> str:
    return "\n".join(["Block by block: the largest bias", *(filled(line, indent=2) for line in worst(answer))])


def worst(answer: Answer) -> Iterator[str]:
    """One line an arm: its block and sigma of largest relative bias, and how its block cells came out."""
    blocks = answer.assessed.sel(metric=answer.metric).drop_sel(block=TOTAL)
    for arm in blocks["arm"].values:
        cells = blocks.sel(arm=arm).stack(cell=("sigma", "block"))
        squares = cells["relative_bias_squared"].values
        named = [verdict for verdict in COLOURS if verdict != INACTIVE or (cells["verdict"].values == verdict).any()]
        counts = [f"{int((cells['verdict'].values == verdict).sum())} {verdict}" for verdict in named]
        summary = f"{squares.size} cells: {', '.join(counts)}"
        if np.isnan(squares).all():
            yield f"{arm}: no block resolved; {summary}"
            continue
        worst = cells.isel(cell=int(np.nanargmax(squares)))
        yield (
            f"{arm}: {worst['block'].item()} at sigma {worst['sigma'].item():g}: "
            f"{signed_root(worst['relative_bias_squared'].item()):.3f} ({_interval(worst).strip()}), "
            f"{worst['verdict'].item()}; {summary}"
        )


def gate_in_words(decision: Decision, colour: bool) -> str:
    """The answer of a gate, in one sentence."""
    gate, verdict = decision.gate, decision.verdict
    painted = f"{COLOURS[verdict]}{verdict}{PLAIN}" if colour else verdict
    line = filled(f"Gate {gate.arm}@{gate.lo:g}:{gate.hi:g}: {verdict}, {decision.reason}")
    return line.replace(f" {verdict},", f" {painted},", 1)


def filled(text: str, *, indent: int = 0) -> str:
    """Wrapped to the width of the report."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2 if indent else 0),
        break_long_words=False,
        break_on_hyphens=False,
    )
