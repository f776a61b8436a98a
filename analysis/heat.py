"""A heat map of blocks and sigmas, of one arm under one metric: ``plots.block_figure`` is made of these."""

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, Normalize, TwoSlopeNorm
from matplotlib.patches import Patch, Rectangle

from analysis.schema import TOTAL
from analysis.verdict import UNRESOLVED

GAP = 0.35
"""Between the last block and the sum, in lines."""
UNDEFINED = "#D8D8D8"
HATCH = {"hatch": "/////", "edgecolor": "#333333", "hatch_linewidth": 0.5, "linewidth": 0.0}
LABEL_INCHES = 0.11
"""Least distance between two names."""


def signed_root(square: np.ndarray) -> np.ndarray:
    """Root of a square that estimation may have left negative: -sqrt(-square) below zero; NaN stays NaN."""
    return np.copysign(np.sqrt(np.abs(square)), square)


def line_height(blocks: int) -> float:
    """Height of a block's line in inches: many blocks get thin lines."""
    return float(np.clip(3.0 / blocks, 0.045, 0.15))


def scale(assessed: xr.Dataset) -> tuple[Normalize, Colormap]:
    """Blue within and red beyond the margin where the rule has one in units of rho, else light to dark."""
    largest = float(np.nanmax(signed_root(assessed["relative_bias_squared"].values), initial=1e-3))
    margin = float(assessed.attrs["margin"])
    if assessed.attrs["rule"] != "relative":
        return Normalize(0.0, largest), mpl.colormaps["YlOrBr"]
    softened = ListedColormap(mpl.colormaps["RdBu_r"](np.linspace(0.14, 0.88, 256)))
    return TwoSlopeNorm(margin, 0.0, max(largest, 2.0 * margin)), softened


def draw_blocks(axes: Axes, cells: xr.Dataset, norm: Normalize, colours: Colormap) -> None:
    """Draw ``cells`` [block, sigma]: the first block on top, the sum over blocks set off below.

    What is unresolved is hatched; what has no figure is grey too.
    """
    cells = cells.transpose("block", "sigma", ...)
    names, sigmas = cells["block"].values.tolist(), cells["sigma"].values.tolist()
    value = signed_root(cells["relative_bias_squared"].values)
    tops = np.array([row + (GAP if name == TOTAL else 0.0) for row, name in enumerate(names)])
    columns = np.arange(len(sigmas) + 1.0)
    for row, top in enumerate(tops):
        line = np.ma.masked_invalid(value[row : row + 1])
        axes.pcolormesh(columns, [top, top + 1.0], line, norm=norm, cmap=colours)
        for column, verdict in enumerate(cells["verdict"].values[row]):
            undefined = not np.isfinite(value[row, column])
            if undefined or verdict == UNRESOLVED:
                colour = UNDEFINED if undefined else "none"
                axes.add_patch(Rectangle((column, top), 1.0, 1.0, facecolor=colour, **HATCH))
    axes.set_xticks(columns[:-1] + 0.5, [f"{sigma:g}" for sigma in sigmas], rotation=90, fontsize=7)
    step = -(-LABEL_INCHES // line_height(len(names)))
    named = [row for row, name in enumerate(names) if name == TOTAL or (row % step == 0 and row + step <= len(names))]
    axes.set_yticks(tops[named] + 0.5, [names[row] for row in named], fontsize=7)
    axes.tick_params(length=0)
    axes.set_xlim(0.0, len(sigmas))
    axes.set_ylim(tops[-1] + 1.0, 0.0)


def legend() -> list[Patch]:
    """Handles for what colour does not say."""
    return [
        Patch(facecolor="white", label="verdict unresolved", **HATCH),
        Patch(facecolor=UNDEFINED, label="no figure: native gradient not told from zero", **HATCH),
    ]
