"""The pictures show the data as they are: every point, interval, verdict and hatch."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from analysis import heat, plots
from analysis.windows import Window

SQUARES = [0.25, -0.04, np.nan, 0.01]
VERDICTS = ["harmful", "unresolved", "unresolved", "safe"]


@pytest.fixture
def assessed() -> xr.Dataset:
    """One metric, two blocks and their sum, one arm, four sigmas; the sum holds SQUARES."""
    dims = ("metric", "sigma", "block", "arm")
    squares = np.stack([[0.09] * 4, [0.16] * 4, SQUARES], axis=-1)[None, ..., None]
    verdicts = np.stack([["safe"] * 4, ["unresolved"] * 4, VERDICTS], axis=-1)[None, ..., None]
    return xr.Dataset(
        {
            "relative_bias_squared": (dims, squares),
            "lower": (dims, squares - 0.05),
            "upper": (dims, squares + 0.11),
            "verdict": (dims, verdicts),
            "images_used": (("sigma",), [16] * 4),
        },
        {"metric": ["raw"], "sigma": [0.2, 0.4, 0.6, 1.0], "block": ["a", "b", "total"], "arm": ["demote:56"]},
        {"rule": "relative", "margin": 0.2, "baseline": "native", "population": "images"},
    )


def test_the_curve_shows_points_intervals_verdicts_margin_and_windows(assessed: xr.Dataset) -> None:
    axes = Figure().subplots()
    cells = assessed.sel(metric="raw", arm="demote:56", block="total")
    plots.draw_curve(axes, cells, [Window("demote:56", 1.0, 1.0, (1.0,), "")])
    marked = {line.get_marker(): line.get_xydata().tolist() for line in axes.lines if line.get_marker() != "None"}
    # At the bottom the tick of a cell without a figure.
    assert marked == {"X": [[0.2, 0.5]], "D": [[0.4, -0.2]], "o": [[1.0, 0.1]], 2: [[0.6, 0.0]]}
    bars = {
        to_hex(bar.get_color()[0]): [segment.tolist() for segment in bar.get_segments()]
        for bar in axes.collections
        if len(bar.get_segments())
    }
    assert set(bars) == {plots.MARKS[verdict]["color"].lower() for verdict in ("safe", "harmful", "unresolved")}
    np.testing.assert_allclose(bars["#d55e00"][0], [[0.2, 0.2**0.5], [0.2, 0.6]])
    np.testing.assert_allclose(bars["#7a7a7a"][0], [[0.4, -0.3], [0.4, 0.07**0.5]])
    assert any(line.get_ydata()[0] == 0.2 and line.get_linestyle() == "--" for line in axes.lines)
    assert [(round(patch.get_x(), 3), round(patch.get_width(), 3)) for patch in axes.patches] == [(0.9, 0.2)]


def test_the_curve_says_how_many_images_each_sigma_has_where_they_differ(assessed: xr.Dataset) -> None:
    cells = assessed.sel(metric="raw", arm="demote:56", block="total")
    for used, told in (([16] * 4, []), ([8, 12, 16, 16], ["8", "12", "16", "16"])):
        axes = Figure().subplots()
        plots.draw_curve(axes, cells.assign(images_used=("sigma", used)))
        assert [text.get_text() for text in axes.texts] == told


def test_no_margin_is_drawn_where_the_rule_has_none_in_this_unit(assessed: xr.Dataset) -> None:
    axes = Figure().subplots()
    assessed.attrs["rule"] = "budget"
    plots.draw_curve(axes, assessed.sel(metric="raw", arm="demote:56", block="total"))
    assert not [line for line in axes.lines if line.get_linestyle() == "--"]


def test_the_heat_map_has_the_first_block_on_top_and_hatches_what_is_unresolved(assessed: xr.Dataset) -> None:
    axes = Figure().subplots()
    norm, colours = heat.scale(assessed)
    heat.draw_blocks(axes, assessed.sel(metric="raw", arm="demote:56"), norm, colours)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "total"]
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    lines = [mesh.get_array() for mesh in axes.collections]
    np.testing.assert_allclose(np.ma.concatenate(lines).filled(np.nan)[:2], [[0.3] * 4, [0.4] * 4])
    np.testing.assert_allclose(lines[2].filled(np.nan), [[0.5, -0.2, np.nan, 0.1]])
    hatched = [(patch.get_x(), int(patch.get_y())) for patch in axes.patches if isinstance(patch, Rectangle)]
    assert sorted(hatched) == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
    grey = [patch.get_x() for patch in axes.patches if patch.get_facecolor()[3] == 1]
    assert grey == [2]
    assert norm(0.2) == 0.5


@pytest.mark.parametrize(("arms", "metrics", "blocks"), [(1, 1, 1), (5, 1, 3), (3, 2, 60), (6, 2, 2)])
def test_figures_lay_out_whatever_a_store_holds(
    assessed: xr.Dataset, arms: int, metrics: int, blocks: int, nothing_cut_off: Callable[[Figure], None]
) -> None:
    """A layout that fails warns, and warnings are errors here."""
    body = xr.concat([assessed.isel(block=[0])] * blocks, "block", data_vars="minimal").assign_coords(
        block=[f"b{n}" for n in range(blocks)]
    )
    wide = xr.concat([body, assessed.isel(block=[2])], "block", data_vars="minimal")
    wide = xr.concat([wide] * arms, "arm", data_vars="minimal").assign_coords(arm=[f"demote:{n}" for n in range(arms)])
    wide = xr.concat([wide] * metrics, "metric", data_vars="minimal").assign_coords(
        metric=[f"m{n}" for n in range(metrics)]
    )
    wide = wide.transpose("metric", "sigma", "block", "arm")
    for figure in (plots.safety_figure(wide), plots.block_figure(wide)):
        figure.set_dpi(80)
        nothing_cut_off(figure)
        shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_title(loc="left")]
        assert len(shown) == arms * metrics
        assert all(axes.get_position().width > 0.08 for axes in shown)
