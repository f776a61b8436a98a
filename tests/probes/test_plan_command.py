"""``probes plan`` from a store: what it prints, in which form, and every way it can be given bad input."""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import schema, store, synthetic
from analysis.entry import exit_code
from analysis.planning import Asked, plan
from analysis.provenance import Code, Provenance
from analysis.sequential import Looks
from probes.cli import app

BIASES = {"demote:56": (0.8, 0.25, 0.02)}


def written(path: Path, **changed: object) -> Path:
    settings = {"arms": ("native", "redraw", "demote:56"), "sigmas": (0.3, 0.6, 0.9), "images": 8, "seed": 1}
    data = synthetic.store(**{**settings, "blocks": ("a", "b"), "relative_bias": BIASES, **changed})
    store.write(path, schema.described(data), Provenance("", {}, Code("")))
    return path


@pytest.fixture(scope="module")
def pilot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("pilot") / "pilot.zarr")


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = exit_code(app, ["plan", *map(str, arguments)], name="probes")
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_tells_every_cell_and_the_sweep(capsys: pytest.CaptureFixture[str], pilot: Path) -> None:
    code, out, err = run(capsys, pilot, "--json", "--margin", 0.2)
    assert (code, err) == (0, "")
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert (told["pilot"], told["margin"], told["chance"]) == (
        {"images": [8, 8, 8], "draws": 4, "unfinished": []},
        0.2,
        0.8,
    )
    cells = {(cell["arm"], cell["sigma"]): cell for cell in told["cells"]}
    assert len(cells) == 6
    assert [cells["demote:56", sigma]["verdict"] for sigma in (0.3, 0.6, 0.9)] == ["harmful", "unresolved", "safe"]
    assert cells["demote:56", 0.3]["images"] is None
    open_ = cells["demote:56", 0.6]
    assert open_["images"] > 8
    assert (open_["draws"], open_["gradients"]) == (4, 2 * 4 * open_["images"])
    # The synthetic store says half a second for an arm and sigma: 8 images x 4 draws.
    assert open_["seconds"] == pytest.approx(open_["gradients"] * 0.5 / 32)
    assert {option["draws"] for option in open_["other_draws"]} <= {1, 2, 8}
    assert told["sweep"]["images"] == max(cell["images"] or 0 for cell in cells.values())
    assert told["sweep"]["gradients"] == told["sweep"]["images"] * 4 * 3 * 3
    assert told["sweep"]["seconds"] == pytest.approx(told["sweep"]["gradients"] * 0.5 / 32)
    assert 0.0 < told["sweep"]["seconds_by_sigma"] < told["sweep"]["seconds"]


def test_text_is_narrow_ascii_with_a_table_for_each_arm(capsys: pytest.CaptureFixture[str], pilot: Path) -> None:
    code, out, err = run(capsys, pilot)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("  sigma   now ") == 2
    assert "Pilot: 8 images x 4 draws; against native" in out
    assert "One sweep for all of them" in out


def test_one_arm_is_planned_for_alone(capsys: pytest.CaptureFixture[str], pilot: Path) -> None:
    told = json.loads(run(capsys, pilot, "--json", "--arm", "demote:56")[1])
    assert {cell["arm"] for cell in told["cells"]} == {"demote:56"}
    assert told["sweep"]["gradients"] == told["sweep"]["images"] * 4 * 2 * 3


def test_an_arm_named_twice_counts_once_and_no_forecast_depends_on_other_arms(
    capsys: pytest.CaptureFixture[str], pilot: Path
) -> None:
    twice = json.loads(run(capsys, pilot, "--json", "--arm", "demote:56", "--arm", "demote:56")[1])
    once = json.loads(run(capsys, pilot, "--json", "--arm", "demote:56")[1])
    both = json.loads(run(capsys, pilot, "--json")[1])
    assert twice == once
    assert any(cell["images"] for cell in once["cells"])
    assert once["cells"] == [cell for cell in both["cells"] if cell["arm"] == "demote:56"]


def test_a_pilot_that_is_unfinished_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path / "half.zarr")
    data = store.open_store(path).load()
    data["done"].values[1] = False
    store.write(tmp_path / "less.zarr", data, Provenance("", {}, Code("")))
    code, out, err = run(capsys, tmp_path / "less.zarr")
    assert (code, err) == (0, "")
    assert "The pilot is unfinished: of sigma 0.6 nothing is told, nor counted below." in " ".join(out.split())
    assert "\n  0.6 " not in out
    assert json.loads(run(capsys, tmp_path / "less.zarr", "--json")[1])["pilot"]["unfinished"] == [0.6]
    assert "unfinished" not in run(capsys, path)[1]


@pytest.mark.parametrize("rule", [["angle"], ["budget", "--margin", "400"], ["gap", "--margin", "0.1", "--control"]])
@pytest.mark.parametrize("population", ["images", "corpus"])
def test_every_rule_and_population_has_a_plan(
    capsys: pytest.CaptureFixture[str], pilot: Path, rule: list[str], population: str
) -> None:
    control = ["redraw"] if rule[0] == "gap" else []
    code, out, err = run(capsys, pilot, "--json", "--population", population, "--rule", *rule, *control)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["rule"] == rule[0]
    assert all(cell["images"] in (None, 8) for cell in told["cells"]) or population == "images"


def test_a_settled_pilot_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    clear = written(tmp_path / "clear.zarr", arms=("native", "gain:1.05"), sigmas=(0.5,), relative_bias={})
    told = json.loads(run(capsys, clear, "--json")[1])
    assert [cell["verdict"] for cell in told["cells"]] == ["safe"]
    assert told["sweep"]["images"] is None
    assert "Every verdict is settled" in run(capsys, clear)[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--margin", "0"], "margin 0 is not a positive number"),
        (["--margin", "-1"], "margin -1 is not a positive number"),
        (["--margin", "nan"], "margin nan is not a positive number"),
        (["--rule", "size"], "rule 'size' is not one of relative"),
        (["--rule", "budget"], "rule 'budget' has no default margin"),
        (["--rule", "gap", "--margin", "0.1"], "rule gap needs a control arm"),
        (["--arm", "demote:48"], "arm 'demote:48' is not a treated arm of this store; it has redraw, demote:56"),
        (["--arm", "native"], "arm 'native' is not a treated arm of this store; it has redraw, demote:56"),
        (["--baseline", "none"], "baseline 'none' is not an arm of this store"),
        (["--metric", "adam"], "metric 'adam' is not in this store; it has raw"),
        (["--chance", "1"], "chance 1 of a settled verdict: give 0.5 or more, and less than 1"),
        (["--population", "all"], "population 'all' is not one of images, corpus"),
        (["--step", "3"], "this store is of one adapter"),
        (["--images", "9"], "--images is of a pilot that is to be made"),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], pilot: Path, options: list[str], message: str
) -> None:
    code, out, err = run(capsys, pilot, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_pilot_of_one_image_or_without_a_cell_says_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, written(tmp_path / "one.zarr", images=1))
    assert (code, err.count("\n")) == (2, 1)
    assert "this pilot has 1 image, whose spread says too little: a plan needs 4 images, better 8 or more" in err
    data = synthetic.store(images=8, sigmas=(0.5,)).assign(done=("sigma", [False]))
    store.write(tmp_path / "undone.zarr", schema.described(data), Provenance("", {}, Code("")))
    assert "no cell of this pilot is done" in run(capsys, tmp_path / "undone.zarr")[2]
    assert "--images 1: too few for a pilot" in run(capsys, "--images", 1, "--out", tmp_path / "none.zarr")[2]
    for bad in (["--arm", "native"], ["--png", tmp_path / "none" / "p.png"]):
        code, out, err = run(capsys, *bad, "--out", tmp_path / "none.zarr")
        assert (code, out, err.count("\n")) == (2, "", 1)
    assert not (tmp_path / "none.zarr").exists()
    assert "is not a store" in run(capsys, tmp_path / "nowhere.zarr")[2]
    assert not (tmp_path / "none.zarr").exists()


def test_an_idle_arm_needs_nothing(pilot: Path) -> None:
    data = store.open_store(pilot).load()
    same = data.isel(arm=[0, 0], arm_2=[0, 0]).assign_coords(arm=["native", "demote:56@0.95"])
    planned = plan(same.assign_coords(arm_2=same["arm"].values), Asked(0.2))
    assert {(cell.verdict, cell.option) for cell in planned.cells} == {("inactive", None)}


def test_a_pilot_that_stopped_by_what_it_saw_is_planned_from_as_it_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Cells of 8, 12 and 16 images; a verdict counts at the level of a look, as in ``analysis safety``."""
    made = {"arms": ("native", "redraw", "demote:56"), "sigmas": (0.3, 0.6, 0.9), "blocks": ("a", "b"), "images": 16}
    data = synthetic.store(**made, relative_bias=BIASES, seed=1)
    used = xr.DataArray([8, 12, 16], dims="sigma")
    data["images_used"] = used.assign_coords(sigma=data["sigma"])
    for name in ("gram_image", "gram_draw", "gram_cross"):
        for image in {"image", "image_2"} & set(data[name].dims):
            seen = xr.DataArray(np.arange(16), dims=image) < used
            data[name] = data[name].where(seen).transpose(*data[name].dims)
    looks = {"until_resolved": {"looks": [8, 12, 16]}}
    store.write(tmp_path / "s.zarr", schema.described(data), Provenance("", looks, Code("")))
    code, out, err = run(capsys, tmp_path / "s.zarr")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "Pilot: 8 to 16 images x 4 draws" in text
    level = 100 * Looks((8, 12, 16)).level("relative")
    assert f"verdicts are at {level:.3g} %, and forecasts are of a sweep of fixed size, whose level is 2.5 %" in text
    told = json.loads(run(capsys, tmp_path / "s.zarr", "--json")[1])
    assert told["pilot"] == {"images": [8, 12, 16], "draws": 4, "unfinished": []}


def test_the_picture_has_every_cell_of_every_arm(
    capsys: pytest.CaptureFixture[str], pilot: Path, tmp_path: Path
) -> None:
    from analysis.planning.plots import plan_figure

    for population in ("images", "corpus"):
        planned = plan(store.open_store(pilot), Asked(0.2, population=population))
        left, right = plan_figure(planned).axes
        unit, size = ("images", 8) if population == "images" else ("draws", 4)
        marks = {tuple(line.get_xydata()[0]) for line in left.lines if line.get_marker() != "None"}
        forecast = {cell.option and getattr(cell.option, unit) for cell in planned.cells} - {None}
        assert {y for _, y in marks} >= forecast
        assert {(cell.sigma, size) for cell in planned.cells if cell.settled} <= marks
        drawn = [tuple(point) for line in right.lines for point in line.get_xydata()]
        assert {(c.sigma, c.smallest_bias) for c in planned.cells if np.isfinite(c.smallest_bias)} <= set(drawn)
    assert run(capsys, pilot, "--png", tmp_path / "plan.png")[0] == 0
    assert (tmp_path / "plan.png").stat().st_size > 10_000
    code, out, err = run(capsys, pilot, "--png", tmp_path / "plan.jpg")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_what_is_not_asked_about_native_says_so_and_nothing_to_settle_is_no_success(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pilot: Path
) -> None:
    assert "length of the redraw" not in run(capsys, pilot)[1]
    assert "of the redraw mean gradient's length?" in run(capsys, pilot, "--baseline", "redraw")[1]
    data = synthetic.store(arms=("native", "demote:56@0.95"), sigmas=(0.3,), blocks=("a",), images=8)
    idle = data.isel(arm=[0, 0], arm_2=[0, 0]).assign_coords(arm=data["arm"].values, arm_2=data["arm_2"].values)
    store.write(tmp_path / "idle.zarr", schema.described(idle), Provenance("", {}, Code("")))
    out = " ".join(run(capsys, tmp_path / "idle.zarr")[1].split())
    (cell,) = (planned := plan(store.open_store(tmp_path / "idle.zarr"), Asked(0.2))).cells
    assert planned.seconds_of_gradient[0.3] == pytest.approx(0.5 / (8 * 4))  # of the baseline alone
    assert not cell.active
    assert "Every arm makes the native step at every sigma: there is nothing to settle." in out
    assert "Every verdict is settled" not in out


def test_no_bias_is_told_as_detectable_where_the_baseline_is_not_told_from_zero(tmp_path: Path) -> None:
    noise = synthetic.Planted(synthetic.power_law(0.0, 48), noise_scale=1e6)
    data = synthetic.store(arms=("native", "redraw"), sigmas=(0.5,), blocks=("a",), images=8, world=noise, seed=5)
    (cell,) = plan(data, Asked(0.2)).cells
    assert np.isnan(cell.smallest_bias)
