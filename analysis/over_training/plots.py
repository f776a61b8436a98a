"""The safety curve over training: relative bias against sigma, a line for each checkpoint."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import heat, plots
from analysis.over_training.answers import Answers
from analysis.schema import TOTAL
from analysis.verdict import INACTIVE, UNRESOLVED

COLUMNS = 2
EARLIEST, LATEST = 0.88, 0.05
"""Part of the colour map that steps are spread over: late training is dark."""
SPREAD = 0.5
"""Part of the distance between two sigma over which the steps' bars are spread, so that none covers another."""


def curve_figure(found: Answers) -> Figure:
    """Axes for each arm, in the sum over blocks and the answer's metric; a colour for each step, a shape a verdict."""
    assessed = found.first.assessed
    arms = assessed["arm"].values.tolist()
    columns = min(len(arms), COLUMNS)
    rows = -(-len(arms) // columns)
    places = np.linspace(EARLIEST, LATEST, len(found.by_step))
    colours = {step: to_hex(mpl.colormaps["viridis"](at)) for step, at in zip(found.by_step, places, strict=True)}
    with mpl.rc_context(plots.STYLE):
        size = (max(plots.NARROWEST, 0.5 + 3.4 * columns), 1.25 + 2.1 * rows)
        figure = Figure(size, dpi=plots.DPI, layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for place, axes in enumerate(grid.flat):
            if place >= len(arms):
                axes.set_visible(False)
                continue
            draw_curves(axes, found, arms[place], colours)
            axes.set_title(arms[place], loc="left")
            axes.set_ylabel(r"relative bias $\rho$" if place % columns == 0 else "")
            if place + columns >= len(arms):
                axes.set_xlabel(r"noise level $\sigma$")
                axes.tick_params(labelbottom=True)
        handles = _legend(found, colours)
        figure.legend(
            handles=handles, loc="outside lower center", ncols=min(len(handles), 1 + 2 * columns), frameon=False
        )
        metric = f"metric {found.first.metric}, bars: 95 % intervals, steps side by side at each $\\sigma$"
        figure.suptitle(f"{plots.title(assessed)}\n{metric}", fontsize=8)
    return figure


def draw_curves(axes: Axes, found: Answers, arm: str, colours: dict[int, str]) -> None:
    """One arm: each step's curve with intervals and verdicts. A cell without a figure is left out."""
    axes.axhline(0.0, color="black", linewidth=0.5)
    about = found.first.assessed.attrs
    if about["rule"] == "relative":
        axes.axhline(about["margin"], **plots.MARGIN)
    offsets = np.linspace(-0.5, 0.5, len(found.by_step)) if len(found.by_step) > 1 else np.zeros(1)
    for (step, answer), offset in zip(found.by_step.items(), offsets, strict=True):
        cells = answer.assessed.sel(metric=answer.metric, arm=arm, block=TOTAL)
        sigma = cells["sigma"].values
        gap = float(np.diff(sigma).min()) if sigma.size > 1 else 0.02
        x = sigma + SPREAD * gap * offset
        square, lower, upper = (cells[name].values for name in ("relative_bias_squared", "lower", "upper"))
        value, low, high = (heat.signed_root(each) for each in (square, lower, upper))
        seen = np.isfinite(value)
        axes.plot(x[seen], value[seen], color=colours[step], linewidth=1.1, zorder=2)
        axes.vlines(x[seen], low[seen], high[seen], color=colours[step], linewidth=1.0, zorder=1)
        for verdict, mark in plots.MARKS.items():
            here = (cells["verdict"].values == verdict) & seen
            axes.plot(x[here], value[here], linestyle="none", zorder=3, **_mark(verdict, mark, colours[step]))


def _mark(verdict: str, mark: dict[str, Any], colour: str) -> dict[str, Any]:
    """The verdict's shape in a step's colour."""
    face = "white" if verdict == UNRESOLVED else colour
    return {"marker": mark["marker"], "markersize": mark["markersize"], "color": colour, "markerfacecolor": face}


def _legend(found: Answers, colours: dict[int, str]) -> list[Line2D]:
    handles = [Line2D([], [], color=colours[step], linewidth=1.6, label=f"step {step}") for step in found.by_step]
    inactive = any((one.assessed["verdict"] == INACTIVE).any() for one in found.by_step.values())
    handles += [
        Line2D([], [], linestyle="none", label=verdict, **_mark(verdict, mark, "#444444"))
        for verdict, mark in plots.MARKS.items()
        if verdict != INACTIVE or inactive
    ]
    if found.first.assessed.attrs["rule"] == "relative":
        handles.append(Line2D([], [], label="margin", **plots.MARGIN))
    return handles
