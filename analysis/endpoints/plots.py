"""Pictures of pairs: agreement by depth with the twins' band, and separation over checkpoints.

They draw what is in the pairs and compute nothing.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.endpoints.pairs import SEPARATED, Pair
from analysis.endpoints.report import pair_name
from analysis.plots import DPI, STYLE

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's, told apart by every common kind of colour vision."""
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
BAND: dict[str, Any] = {"color": "#9A9A9A", "alpha": 0.3, "linewidth": 0}
SMALLEST = 1e-16
"""1 - cosine of equal runs, for a logarithmic axis."""


def profile_figure(pairs: Sequence[Pair]) -> Figure:
    """Cosine of every pair by depth. Grey: where one more untreated run is expected, if twins tell."""
    with mpl.rc_context(STYLE):
        figure = Figure((6.4, 3.4), dpi=DPI, layout="constrained")
        axes = figure.subplots()
        draw_profile(axes, pairs)
        figure.legend(loc="outside right upper", frameon=False, fontsize=7)
        figure.suptitle(title(pairs), fontsize=8)
    return figure


def draw_profile(axes: Axes, pairs: Sequence[Pair]) -> None:
    """Cosine against block, in depth order; a filled mark is a block that is separated."""
    names = list(pairs[0].blocks)
    depth = np.arange(len(names))
    for place, pair in enumerate(pairs):
        cosines = np.array([np.nan if f.cosine is None else f.cosine for f in pair.blocks.values()])
        apart = np.array([f.verdict == SEPARATED for f in pair.blocks.values()])
        line = line_of(place)
        axes.plot(depth, cosines, label=pair_name(pair), marker="o", markersize=3, markerfacecolor="white", **line)
        axes.plot(depth[apart], cosines[apart], linestyle="none", marker="o", markersize=3, color=line["color"])
    draw_band(axes, depth, pairs)
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.set(xlabel="block, in depth order", ylabel=r"cosine of $\Delta W$")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(names) <= 24:
        axes.set_xticks(depth, [short(name) for name in names], rotation=60, ha="right")


def draw_band(axes: Axes, depth: np.ndarray, pairs: Sequence[Pair]) -> None:
    """From the least cosine expected of one more twin up to 1, of the first pair whose twins tell it."""
    for pair in pairs:
        floors = [figure.floor for figure in pair.blocks.values()]
        lowest = np.array([np.nan if f is None or f.lowest is None else f.lowest for f in floors])
        if np.isfinite(lowest).any():
            axes.fill_between(depth, lowest, 1.0, label="one more twin (95 %)", step="mid", **BAND)
            return


def growth_figure(pairs: Sequence[Pair]) -> Figure:
    """1 - cosine of every pair against steps, both logarithmic."""
    with mpl.rc_context(STYLE):
        figure = Figure((6.4, 3.4), dpi=DPI, layout="constrained")
        axes = figure.subplots()
        for place, pair in enumerate(pairs):
            steps = [step for step, cosine in pair.growth.items() if cosine is not None]
            apart = [max(1 - (pair.growth[step] or 0.0), SMALLEST) for step in steps]
            axes.plot(steps, apart, label=pair_name(pair), marker=".", markersize=3, **line_of(place))
        axes.set(xscale="log", yscale="log", xlabel="optimiser steps", ylabel=r"1 - cosine of $\Delta W$")
        figure.legend(loc="outside right upper", frameon=False, fontsize=7)
        figure.suptitle("Growth of separation: equal bytes lie at the bottom", fontsize=8)
    return figure


def line_of(place: int) -> dict[str, Any]:
    """Colour and dashes of the pair at ``place``."""
    dash = DASHES[place // len(COLOURS) % len(DASHES)]
    return {"color": COLOURS[place % len(COLOURS)], "linestyle": dash, "linewidth": 1.0}


def title(pairs: Sequence[Pair]) -> str:
    """In one line."""
    step = pairs[0].step
    return f"Where runs agree{f' after {step} steps' if step else ''}: a detector, never a ruler"


def short(block: str) -> str:
    """``single_transformer_blocks.3`` -> ``single 3``, ``transformer_blocks.3`` -> ``block 3``."""
    stack, _, number = block.rpartition(".")
    return f"{stack.removesuffix('transformer_blocks').removesuffix('blocks').strip('_') or 'block'} {number}"
