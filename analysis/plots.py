"""Two pictures of an assessed store. They draw what is in it and compute nothing.

    safety_figure(assessed, windows).savefig("curve.png")    # relative bias against sigma, axes per metric and arm
    block_figure(assessed).savefig("blocks.png")             # block x sigma, axes per arm and metric

Relative bias is drawn as the signed root of its estimated square. Colours are Okabe and Ito's, told apart by every
common kind of colour vision; each verdict also has a shape of its own. No global state of matplotlib is touched.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from analysis import heat
from analysis.schema import TOTAL
from analysis.verdict import HARMFUL, INACTIVE, SAFE, UNRESOLVED
from analysis.windows import Window

MARKS: dict[str, dict[str, Any]] = {
    SAFE: {"color": "#009E73", "marker": "o", "markersize": 4.5},
    HARMFUL: {"color": "#D55E00", "marker": "X", "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.5},
    UNRESOLVED: {"color": "#7A7A7A", "marker": "D", "markersize": 4.5, "markerfacecolor": "white"},
    INACTIVE: {"color": "#BBBBBB", "marker": "_", "markersize": 4.5},
}
MARGIN: dict[str, Any] = {"color": "black", "linewidth": 0.9, "linestyle": (0, (4, 2))}
NO_FIGURE: dict[str, Any] = {
    "color": "#7A7A7A",
    "marker": 2,
    "markersize": 6,
    "markeredgewidth": 1.3,
    "linestyle": "none",
}
WINDOW: dict[str, Any] = {"color": "#009E73", "alpha": 0.13, "linewidth": 0}
STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
}
DPI = 200
COLUMNS = 4
"""Most axes beside each other in the curve's figure."""
NARROWEST = 5.1
"""Inches that a title and the legend below need, however few axes there are."""


def safety_figure(assessed: xr.Dataset, windows: Sequence[Window] = ()) -> Figure:
    """The sigma-safety curve in the sum over blocks: axes for each arm, in rows of their own for each metric.

    ``windows`` are shaded for the first metric, which they are about.
    """
    metrics, arms = assessed["metric"].values.tolist(), assessed["arm"].values.tolist()
    columns = min(len(arms), COLUMNS if len(metrics) > 1 or len(arms) > COLUMNS else 2)
    rows_each = -(-len(arms) // columns)
    rows = rows_each * len(metrics)
    with mpl.rc_context(STYLE):
        figure = Figure((max(NARROWEST, 0.5 + 2.3 * columns), 0.95 + 1.75 * rows), dpi=DPI, layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for row, line in enumerate(grid):
            metric = metrics[row // rows_each]
            for column, axes in enumerate(line):
                place = row % rows_each * columns + column
                if place >= len(arms):
                    axes.set_visible(False)
                    continue
                own = [window for window in windows if window.arm == arms[place] and metric == metrics[0]]
                draw_curve(axes, assessed.sel(metric=metric, arm=arms[place], block=TOTAL), own)
                axes.set_title(f"{arms[place]}   {metric}" if len(metrics) > 1 else arms[place], loc="left")
                axes.set_ylabel(r"relative bias $\rho$" if column == 0 else "")
                if place + columns >= len(arms) and row + rows_each >= rows:
                    axes.set_xlabel(r"noise level $\sigma$")
                    axes.tick_params(labelbottom=True)
        handles = _legend(assessed, bool(windows))
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, columnspacing=1.4)
        numbers = "; above: images of each sigma" if images_vary(assessed) else ""
        figure.suptitle(f"{title(assessed)}\nbars: 95 % intervals{numbers}", fontsize=8)
    return figure


def draw_curve(axes: Axes, cells: xr.Dataset, windows: Sequence[Window] = ()) -> None:
    """Relative bias of one arm, metric and block against sigma: intervals, verdicts, margin, safe windows.

    ``cells`` has the dimension sigma only. A cell without a figure is a tick at the bottom. Where sigma have different
    numbers of images, these stand on top.
    """
    sigma = cells["sigma"].values
    value, lower, upper = (heat.signed_root(cells[name].values) for name in ("relative_bias_squared", "lower", "upper"))
    half = 0.5 * float(np.diff(sigma).min()) if sigma.size > 1 else 0.01
    for window in windows:
        axes.axvspan(window.lo - half, window.hi + half, **WINDOW)
    axes.axhline(0.0, color="black", linewidth=0.5)
    if cells.attrs["rule"] == "relative":
        axes.axhline(cells.attrs["margin"], **MARGIN)
    axes.plot(sigma, value, color="#5A5A5A", linewidth=0.7, zorder=1)
    resolved = np.isfinite(value)
    for verdict, mark in MARKS.items():
        here = (cells["verdict"].values == verdict) & resolved
        if not here.any():
            continue
        axes.vlines(sigma[here], lower[here], upper[here], color=mark["color"], linewidth=1.3, zorder=2)
        axes.plot(sigma[here], value[here], linestyle="none", zorder=3, **mark)
    if not resolved.all():
        missing = sigma[~resolved]
        axes.plot(missing, np.zeros(missing.size), transform=axes.get_xaxis_transform(), clip_on=False, **NO_FIGURE)
    if images_vary(cells):
        axes.margins(y=0.12)
        top: Any = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "top", "fontsize": 5}
        for at, images in zip(sigma, cells["images_used"].values, strict=True):
            axes.text(at, 1.0, f"{images}", color="#5A5A5A", **top)


def images_vary(assessed: xr.Dataset) -> bool:
    """Whether some sigma has fewer images than another, as where a sweep stopped by what it saw."""
    return len(np.unique(assessed["images_used"].values)) > 1


def block_figure(assessed: xr.Dataset) -> Figure:
    """Relative bias of every block at every sigma: a row for each arm, a column for each metric, one colour scale."""
    metrics, arms = assessed["metric"].values.tolist(), assessed["arm"].values.tolist()
    line = heat.line_height(assessed.sizes["block"])
    norm, colours = heat.scale(assessed)
    with mpl.rc_context(STYLE | {"axes.spines.left": False, "axes.spines.bottom": False}):
        height = 1.0 + len(arms) * (0.35 + line * (assessed.sizes["block"] + heat.GAP))
        figure = Figure((2.1 + 3.4 * len(metrics), height), dpi=DPI, layout="constrained")
        grid = figure.subplots(len(arms), len(metrics), sharex=True, sharey=True, squeeze=False)
        for row, arm in enumerate(arms):
            for column, metric in enumerate(metrics):
                heat.draw_blocks(grid[row, column], assessed.sel(arm=arm, metric=metric), norm, colours)
                grid[row, column].set_title(f"{arm}   {metric}" if len(metrics) > 1 else arm, loc="left")
            grid[row, 0].set_ylabel("\u2190 depth")
        for axes in grid[-1]:
            axes.set_xlabel(r"noise level $\sigma$")
        mappable = ScalarMappable(norm, colours)
        bar = figure.colorbar(mappable, ax=grid, label=r"relative bias $\rho$", fraction=0.04, aspect=30, extend="min")
        bar.outline.set_visible(False)
        if assessed.attrs["rule"] == "relative":
            margin, largest = assessed.attrs["margin"], norm.vmax or 0.0
            bar.ax.axhline(margin, **MARGIN)
            beyond = [tick for tick in MaxNLocator(4).tick_values(margin, largest) if 1.4 * margin < tick <= largest]
            bar.set_ticks([0.0, margin / 2, margin, *beyond])
        figure.legend(handles=heat.legend(), loc="outside lower center", ncols=2, frameon=False)
        figure.suptitle(title(assessed), fontsize=8)
    return figure


def title(assessed: xr.Dataset) -> str:
    """What is asked, in one line."""
    about = assessed.attrs
    population = "images like these" if about["population"] == "images" else "exactly this corpus"
    return f"Gradient bias against {about['baseline']}: {population}, rule {about['rule']}, margin {about['margin']:g}"


def _legend(assessed: xr.Dataset, shaded: bool) -> list[Line2D | Patch]:
    handles: list[Line2D | Patch] = [
        Line2D([], [], linewidth=1.3, label=verdict, **mark)
        for verdict, mark in MARKS.items()
        if verdict != INACTIVE or (assessed["verdict"] == INACTIVE).any()
    ]
    if assessed["relative_bias_squared"].sel(block=TOTAL).isnull().any():
        handles.append(Line2D([], [], label="no figure", **NO_FIGURE))
    if assessed.attrs["rule"] == "relative":
        handles.append(Line2D([], [], label="margin", **MARGIN))
    if shaded:
        handles.append(Patch(label="safe window", **WINDOW))
    return handles
