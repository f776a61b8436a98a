"""The front as a picture: relative bias against expected speed-up. It draws what is in the answer."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.heat import signed_root
from analysis.plots import DPI, MARGIN, MARKS, STYLE
from analysis.policy.answer import Answer
from analysis.verdict import UNRESOLVED

OTHERS: dict[str, Any] = {"color": "#BBBBBB", "marker": ".", "markersize": 2.5, "linestyle": "none"}
FRONT: dict[str, Any] = {"color": "#5A5A5A", "linewidth": 0.9}
PICKED: dict[str, Any] = {
    "marker": "o",
    "markersize": 11,
    "markerfacecolor": "none",
    "color": "black",
    "markeredgewidth": 0.9,
}

SMALLER: dict[str, Any] = {"markersize": 7}


def front_figure(answer: Answer) -> Figure:
    """Every policy as a dot, the front as a line with intervals, those named with a label, the picked one circled."""
    with mpl.rc_context(STYLE):
        figure = Figure((5.4, 3.8), dpi=DPI, layout="constrained")
        axes = figure.subplots()
        total = answer.total
        axes.plot(total["speed_up"].values, signed_root(total["relative_bias_squared"].values), zorder=1, **OTHERS)
        axes.axhline(0.0, color="black", linewidth=0.5)
        question = answer.question
        if question.margin is not None and question.rule == "relative":
            axes.axhline(question.margin, **MARGIN)
        _draw(axes, answer, list(answer.front), line=True)
        _draw(axes, answer, [name for name in answer.named if name not in answer.front], line=False)
        for name in answer.named:
            x, y = _place(answer, name)
            axes.annotate(name, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=6)
        if answer.picked is not None:
            axes.plot(*_place(answer, answer.picked), linestyle="none", zorder=4, **PICKED)
        axes.set_xlabel(f"expected speed-up, by {question.cost}")
        axes.set_ylabel(r"relative bias $\rho$ of the expected gradient")
        figure.legend(handles=_legend(answer), loc="outside lower center", ncols=5, frameon=False, columnspacing=1.2)
        population = "images like these" if question.population == "images" else "exactly this corpus"
        told = f"sigma sampler {question.sampler}, {population}, {len(answer.policies)} policies; bars: 95 % intervals"
        figure.suptitle(told, fontsize=8)
    return figure


def _draw(axes: Axes, answer: Answer, names: list[str], *, line: bool) -> None:
    if not names:
        return
    rows = answer.total.sel(policy=names)
    x = rows["speed_up"].values
    y, lower, upper = (signed_root(rows[name].values) for name in ("relative_bias_squared", "lower", "upper"))
    if line:
        axes.plot(x, y, zorder=2, **FRONT)
    verdicts = rows["verdict"].values if "verdict" in rows else np.full(len(names), UNRESOLVED)
    for verdict, mark in MARKS.items():
        here = verdicts == verdict
        axes.vlines(x[here], lower[here], upper[here], color=mark["color"], linewidth=1.3, zorder=2)
        axes.plot(x[here], y[here], linestyle="none", zorder=3, **mark)


def _place(answer: Answer, name: str) -> tuple[float, float]:
    row = answer.total.sel(policy=name)
    return row["speed_up"].item(), float(signed_root(row["relative_bias_squared"].values))


def _legend(answer: Answer) -> list[Line2D]:
    shown = set(answer.total["verdict"].values.tolist()) if "verdict" in answer.total else set()
    found = [Line2D([], [], label="a policy", **OTHERS), Line2D([], [], label="front", **FRONT)]
    found += [Line2D([], [], linestyle="none", label=word, **mark) for word, mark in MARKS.items() if word in shown]
    if answer.question.margin is not None and answer.question.rule == "relative":
        found.append(Line2D([], [], label="margin", **MARGIN))
    if answer.picked is not None:
        found.append(Line2D([], [], linestyle="none", label="picked", **(PICKED | SMALLER)))
    return found
