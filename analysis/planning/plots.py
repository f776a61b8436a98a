"""A plan as a picture: what would settle each verdict, and what the pilot's size detects. It computes nothing."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.planning.pilot import Cell, Planned
from analysis.planning.predict import LARGEST
from analysis.plots import DPI, MARGIN, MARKS, STYLE
from analysis.report import counted, of_images, rule_in_words
from analysis.verdict import HARMFUL, INACTIVE, SAFE, UNRESOLVED

COLOURS = ("#0072B2", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6BB1")
"""Of arms: those of Okabe and Ito that stand for no verdict, and one more."""
PILOT: dict[str, Any] = {"color": "#7A7A7A", "linewidth": 0.9, "linestyle": (0, (1, 2))}
BEYOND: dict[str, Any] = {"marker": "^", "markersize": 5, "markerfacecolor": "white"}
LARGER = 1.35 * LARGEST
"""Times the pilot, where cells without a forecast are drawn."""


def plan_figure(planned: Planned) -> Figure:
    """Left: images (of ``corpus`` draws) that settle each verdict. Right: the smallest relative bias that is detected.

    A colour for each arm, a shape for each verdict as the pilot has it.
    """
    arms = list(dict.fromkeys(cell.arm for cell in planned.cells))
    with mpl.rc_context(STYLE):
        figure = Figure((7.2, 3.4), dpi=DPI, layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True)
        for place, arm in enumerate(arms):
            cells = [cell for cell in planned.cells if cell.arm == arm]
            draw_sizes(left, planned, cells, COLOURS[place % len(COLOURS)])
            seen = [(cell.sigma, cell.smallest_bias) for cell in cells if math.isfinite(cell.smallest_bias)]
            draw_line(right, seen, color=COLOURS[place % len(COLOURS)], linewidth=1.1)
        draw_line(left, [(sigma, size(planned, sigma)) for sigma in planned.images], zorder=0, **PILOT)
        left.set(yscale="log", ylabel=f"{unit(planned)} that settle the verdict")
        right.set(ylabel=r"smallest $\rho$ told from none", ylim=(0.0, None))
        if planned.asked.rule == "relative":
            right.axhline(planned.asked.margin, **MARGIN)
        for axes in (left, right):
            axes.set_xlabel(r"noise level $\sigma$")
        handles = _legend(planned, arms)
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), frameon=False)
        figure.suptitle(_title(planned), fontsize=8)
    return figure


def draw_sizes(axes: Axes, planned: Planned, cells: list[Cell], colour: str) -> None:
    """One arm: settled cells at the pilot's size, open ones at their forecast, or above all of them without one."""
    known = [(cell.sigma, getattr(cell.option, unit(planned))) for cell in cells if cell.option is not None]
    draw_line(axes, known, color=colour, linewidth=0.7, zorder=1)
    for cell in cells:
        y, mark = size(planned, cell.sigma), MARKS[cell.verdict]
        if cell.option is not None:
            y = getattr(cell.option, unit(planned))
        elif cell.verdict == UNRESOLVED:
            y, mark = LARGER * y, BEYOND
        axes.plot(cell.sigma, y, linestyle="none", zorder=3, **{**mark, "color": colour})


def draw_line(axes: Axes, points: Sequence[tuple[float, float]], **style: Any) -> None:
    """Through (x, y) of each point."""
    axes.plot([x for x, _ in points], [y for _, y in points], **style)


def unit(planned: Planned) -> str:
    """What a larger sweep has more of."""
    return "images" if planned.asked.population == "images" else "draws"


def size(planned: Planned, sigma: float) -> int:
    """How many of it the pilot has."""
    return planned.images[sigma] if planned.asked.population == "images" else planned.draws


def _title(planned: Planned) -> str:
    asked = planned.asked
    question = rule_in_words(asked.rule, asked.margin, asked.control or "", asked.baseline)
    pilot = f"pilot: {of_images(planned.images.values())} x {counted(planned.draws, 'draw')}"
    return f"{question}\n{pilot}; chance {100 * asked.chance:g} %"


def _legend(planned: Planned, arms: list[str]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=COLOURS[place % len(COLOURS)], linewidth=1.6, label=arm) for place, arm in enumerate(arms)
    ]
    names = {SAFE: "safe now", HARMFUL: "harmful now", UNRESOLVED: "unresolved", INACTIVE: "inactive"}
    there = {cell.verdict for cell in planned.cells}
    for verdict, name in names.items():
        if verdict in there:
            handles.append(Line2D([], [], linestyle="none", label=name, **{**MARKS[verdict], "color": "#444444"}))
    if any(cell.option is None and not cell.settled for cell in planned.cells):
        handles.append(Line2D([], [], linestyle="none", label="no forecast", color="#444444", **BEYOND))
    handles.append(Line2D([], [], label="the pilot's size", **PILOT))
    if planned.asked.rule == "relative":
        handles.append(Line2D([], [], label="margin", **MARGIN))
    return handles
