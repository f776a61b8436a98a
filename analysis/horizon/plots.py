"""The picture of a horizon: separation and non-linearity against optimiser steps. It computes no estimate."""

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from analysis.horizon.answer import Answer, over_seeds
from analysis.horizon.growth import SATURATION
from analysis.horizon.reach import LIMIT
from analysis.plots import DPI, STYLE
from analysis.schema import TOTAL

if TYPE_CHECKING:
    import xarray as xr

LINEAR: dict[str, Any] = {"color": "#009E73", "alpha": 0.13, "linewidth": 0}
JITTER: dict[str, Any] = {"color": "#7A7A7A", "linewidth": 0.7, "alpha": 0.6}
FLOOR: dict[str, Any] = {"color": "#7A7A7A", "linewidth": 0.9, "linestyle": (0, (1, 2))}
SATURATED: dict[str, Any] = {"color": "black", "linewidth": 0.7, "linestyle": (0, (4, 2))}


def horizon_figure(answer: Answer) -> Figure:
    """Left: separation of doses and jitters, both axes logarithmic, the linear regime of the full dose shaded.

    Right: non-linearity of each dose with its limit. Filled marks lie up to the horizon; the band of 95 % over seeds is
    that of the full dose, and its seeds are thin lines.
    """
    with mpl.rc_context(STYLE):
        figure = Figure((7.2, 3.4), dpi=DPI, layout="constrained")
        left, right = figure.subplots(1, 2, sharex=True)
        draw_separation(left, answer)
        draw_nonlinearity(right, answer)
        for axes in (left, right):
            shade(axes, answer)
            axes.set(xscale="log", yscale="log", xlabel="optimiser steps")
            axes.xaxis.set_major_locator(FixedLocator(ticks(answer.steps)))
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_minor_formatter(NullFormatter())
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, columnspacing=1.4)
        figure.suptitle(title(answer), fontsize=8)
    return figure


def draw_separation(axes: Axes, answer: Answer) -> None:
    """|d(dose)| / |D| of every dose; jitters one by one in grey, and the floor."""
    at = answer.figures.sel(block=TOTAL)
    doses = [n for n, d in zip(at["arm"].values, at["arm_dose"].values, strict=True) if d > 0]
    for name, colour in zip(doses, colours(len(doses)), strict=True):
        holds = linear(answer, name) if name in answer.doses else None
        draw_dose(axes, answer, name, at["separation"].sel(arm=name), holds, colour)
    for place, name in enumerate(at["arm"].values[np.isnan(at["arm_dose"].values)]):
        mean, _, _ = over_seeds(at["separation"].sel(arm=name))
        axes.plot(answer.steps, mean, label="" if place else "jitters", **JITTER)
    axes.plot(answer.steps, over_seeds(at["floor"])[0], label="floor: float32", **FLOOR)
    axes.axhline(SATURATION, label="nothing in common", **SATURATED)
    axes.set_ylabel(r"separation $|d_k|\,/\,|\theta_k(0)-\theta_0|$")


def draw_nonlinearity(axes: Axes, answer: Answer) -> None:
    """NL of every dose that has a half, in the colours of the separation."""
    at = answer.figures.sel(block=TOTAL)["nonlinearity"]
    for name, colour in zip(answer.doses, colours(len(answer.doses) + 1)[1:], strict=True):
        draw_dose(axes, answer, name, at.sel(dose=name), linear(answer, name), colour)
    axes.axhline(LIMIT, **SATURATED)
    axes.set_ylabel("non-linearity NL")


def linear(answer: Answer, dose: str) -> np.ndarray:
    """Steps up to the horizon of ``dose``."""
    return np.asarray(answer.steps) <= answer.reaches[TOTAL][dose].horizon.step


def draw_dose(
    axes: Axes, answer: Answer, dose: str, values: "xr.DataArray", holds: np.ndarray | None, colour: Any
) -> None:
    """The mean over seeds; marks are filled where ``holds``, and there are none where that is unknown."""
    steps, (mean, lower, upper) = answer.steps, over_seeds(values)
    if dose == answer.full and lower is not None and upper is not None:
        axes.fill_between(steps, lower, upper, color=colour, alpha=0.12, linewidth=0)
        for of_seed in values.transpose("seed", "step").values:
            axes.plot(steps, np.where(of_seed > 0, of_seed, np.nan), color=colour, linewidth=0.5, alpha=0.6)
    mark: dict[str, Any] = {"marker": "o", "markersize": 3.5, "color": colour}
    if holds is None:
        axes.plot(steps, mean, color=colour, linewidth=1.1, label=f"dose {dose}")
        return
    axes.plot(steps, mean, linewidth=1.1, markerfacecolor="white", label=f"dose {dose}", **mark)
    axes.plot(np.asarray(steps)[holds], mean[holds], linestyle="none", **mark)


def shade(axes: Axes, answer: Answer) -> None:
    """The linear regime of the full dose: from the left edge to its horizon."""
    last = answer.reaches[TOTAL][answer.full].horizon.step
    if last:
        axes.axvspan(answer.steps[0] * 0.85, last, **LINEAR)


def colours(n: int) -> list[Any]:
    """From light to dark with the dose."""
    return [mpl.colormaps["viridis_r"](0.15 + 0.75 * place / max(1, n - 1)) for place in range(n)]


def ticks(steps: list[int]) -> list[int]:
    """At most eight of the steps, evenly taken."""
    return steps[:: -(-len(steps) // 8)]


def title(answer: Answer) -> str:
    """In two lines."""
    found = answer.reaches[TOTAL][answer.full]
    notes = ["shaded"] * bool(found.horizon.step)
    notes += [] if found.lower is None else [f"95 %: {found.lower} to {found.upper}"]
    noted = f" ({', '.join(notes)})" if notes else ""
    return (
        f"{answer.setting}\nruler horizon at dose {answer.full}: {found.horizon}{noted}; "
        f"filled marks: NL below {LIMIT:g}"
    )
