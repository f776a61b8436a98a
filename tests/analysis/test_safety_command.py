"""``analysis safety``, ``show`` and ``export``, as a user and as a script call them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from matplotlib.image import imread

from analysis import report, store
from analysis.cli import app
from analysis.entry import exit_code
from analysis.safety import assess
from analysis.windows import windows

LABELS = ("sigma", "block", "arm", "metric", "population")
FIGURES = (
    "relative_bias_squared",
    "standard_error",
    "lower",
    "upper",
    "cosine",
    "norm_ratio",
    "gain",
    "turn_squared",
    "samples_to_notice",
)
ASKED = ("rule", "margin", "verdict", "images_needed")


@pytest.fixture
def copied(probe_store: Path, tmp_path: Path) -> Path:
    return shutil.copytree(probe_store, tmp_path / "probe.zarr")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    def call(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(app, [str(argument) for argument in arguments], name="analysis")
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def assessed(probe_store: Path) -> xr.Dataset:
    return assess(store.open_store(probe_store), margin=0.2)


def test_the_report_is_a_table_windows_and_two_pictures(call, copied: Path, assessed: xr.Dataset) -> None:
    code, out, err = call("safety", copied)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.replace(str(copied.parent), "").splitlines())) <= 80
    row = assessed.sel(metric="raw", block="total", arm="demote:56", sigma=0.3)
    root = float(row["relative_bias_squared"]) ** 0.5
    line = f"  0.3     {root:13.3f}  {float(row['lower']) ** 0.5:6.3f} to {float(row['upper']) ** 0.5:.3f}"
    found = re.search(rf"^{line} +{float(row['cosine']):.4f} +{float(row['norm_ratio']):.3f}  harmful$", out, re.M)
    assert found
    assert len(re.findall(r"^  0\.[369] +-?\d", out, re.M)) == 6
    assert "Is the bias at most 20 % of the native mean gradient's length?" in out
    safe = [window for window in windows(assessed, "raw") if window.arm == "demote:56"]
    assert [window.sigmas for window in safe] == [(0.9,)]
    assert "  demote:56\n    sum over blocks: safe at 0.9; harmful at 0.3" in out
    assert {file.name for file in copied.parent.iterdir()} == {"probe.zarr", "probe-safety.png", "probe-blocks.png"}
    for name in ("probe-safety.png", "probe-blocks.png"):
        assert str(copied.parent / name) in out
        picture = imread(copied.parent / name)
        assert picture.shape[0] > 400
        assert picture.std() > 0.05


def test_json_is_one_object_that_equals_the_assessment(call, probe_store: Path, assessed: xr.Dataset) -> None:
    code, out, err = call("safety", probe_store, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert len(answer["cells"]) == assessed["verdict"].size == 2 * 3 * 3 * 2
    for cell in answer["cells"]:
        assert {*LABELS, *FIGURES, *ASKED} <= set(cell)
        there = assessed.sel({dim: cell[dim] for dim in ("metric", "sigma", "block", "arm")})
        for name in FIGURES:
            value = float(there[name])
            assert cell[name] == (value if np.isfinite(value) else None)
        assert cell["verdict"] == there["verdict"].item()
        assert (cell["population"], cell["rule"], cell["margin"]) == ("images", "relative", 0.2)
        assert (cell["images_needed"] is not None) <= (cell["verdict"] == "unresolved")
    assert answer["windows"]["demote:56"][0]["sigmas"] == [0.9]
    assert "every listed grid sigma" in answer["windows"]["demote:56"][0]["claim"]
    assert answer["harmful_windows"]["demote:56"][0]["sigmas"] == [0.3]
    assert answer["gate"] is None
    assert not list(probe_store.parent.glob("*.png"))


def test_metric_and_png_are_as_asked(call, probe_store: Path, tmp_path: Path) -> None:
    code, out, _ = call("safety", probe_store, "--json", "--metric", "weight", "--png", tmp_path / "a-safety.png")
    answer = json.loads(out)
    assert code == 0
    assert {cell["metric"] for cell in answer["cells"]} == {"weight"}
    assert answer["files"] == {"Curve": str(tmp_path / "a-safety.png"), "Blocks": str(tmp_path / "a-blocks.png")}
    assert {file.name for file in tmp_path.iterdir()} == {"a-safety.png", "a-blocks.png"}


@pytest.mark.parametrize(
    ("gate", "code"),
    [("demote:56@0.9:0.9", 0), ("demote:56@0.3:0.9", 1), ("demote:56@0.6:0.9", 3), ("redraw@0.3:0.3", 0)],
)
def test_a_gate_answers_by_its_exit_code(call, probe_store: Path, gate: str, code: int) -> None:
    words = {0: "safe", 1: "harmful", 3: "unresolved"}
    got, out, err = call("safety", probe_store, "--gate", gate)
    assert (got, err) == (code, "")
    assert f"Gate {gate}: {words[code]}," in out
    assert not list(probe_store.parent.glob("*.png"))
    got, out, _ = call("safety", probe_store, "--gate", gate, "--json")
    assert (got, json.loads(out)["gate"]["verdict"]) == (code, words[code])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gate", "demote:56"], "gate 'demote:56' is not of the form"),
        (["--gate", "demote:48@0.3:0.9"], "gate 'demote:48@0.3:0.9' asks for arm 'demote:48'"),
        (["--gate", "native@0.3:0.9"], "gate 'native@0.3:0.9' asks for arm 'native'"),
        (["--gate", "demote:56@0.1:0.9"], "gate demote:56@0.1:0.9 is not covered"),
        (["--metric", "adam"], "metric 'adam' is not in this store; it has raw, weight"),
        (["--rule", "budget"], "rule 'budget' has no default margin: give --margin in samples"),
        (["--rule", "strict"], "rule 'strict'"),
        (["--margin", "0"], "margin 0 is not"),
        (["--margin", "x"], "Invalid value for '--margin'"),
        (["--baseline", "none"], "baseline 'none' is not an arm"),
        (["--population", "all"], "population 'all'"),
        (["--control", "redraw"], "rule gap needs a control arm"),
        (["--png", "/nowhere/at/all.png"], "no folder /nowhere/at to write all.png in"),
    ],
)
def test_bad_usage_is_one_line_and_code_2(call, probe_store: Path, options: list[str], message: str) -> None:
    code, _, err = call("safety", probe_store, *options)
    assert code == 2
    assert err.startswith("analysis: ")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["safety", "show"])
def test_a_bad_store_is_one_line_and_code_2(call, copied: Path, tmp_path: Path, command: str) -> None:
    code, out, err = call(command, tmp_path)
    assert (code, out) == (2, "")
    assert err == f"analysis: {tmp_path} is not a store: want a folder that probes grad made\n"
    (copied / "gram_image" / "c.0.1.0.0.0.0.0").write_bytes(b"x")
    code, out, err = call(command, copied)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "array gram_image at sigma 0.6 cannot be read" in err


def test_every_rule_and_population_answers(call, probe_store: Path) -> None:
    for options in (
        ["--rule", "angle"],
        ["--rule", "budget", "--margin", "1000"],
        ["--rule", "gap", "--margin", "0.1", "--control", "redraw"],
        ["--population", "corpus"],
    ):
        code, out, err = call("safety", probe_store, *options, "--gate", "demote:56@0.3:0.3")
        assert (code in (0, 1, 3), err) == (True, ""), options
        assert max(map(len, out.splitlines())) <= 80
    assert "exactly this corpus" in out
    assert out.count("verdict     draws\n") == 2


def test_a_store_in_the_making_is_answered_with_a_warning(call, copied: Path) -> None:
    (copied / "done" / "c.1").unlink()
    code, out, _ = call("safety", copied, "--gate", "demote:56@0.6:0.9")
    assert code == 3
    assert "Warning: sigma 0.6 not done" in out
    assert "Gate demote:56@0.6:0.9: unresolved, 1 of 2 sigmas are not done" in out
    code, out, _ = call("show", copied)
    assert "2 of 3 cells done" in out
    assert re.search(r"^  0\.6 +not done$", out, re.M)


def test_show_tells_what_a_store_holds_and_where_it_comes_from(call, probe_store: Path) -> None:
    code, out, err = call("show", probe_store)
    assert (code, err) == (0, "")
    for said in (
        "3 of 3 cells done",
        "native, redraw, demote:56",
        "2: double.0, single.0",
        "16: image_000, image_001, image_002, image_003 ... image_015",
        "probes grad --sigma-grid 0.3,0.6,0.9",
        "version 0.1.0 abc",
        "seed 0",
        "model sha256:1",
        "none taken",
    ):
        assert said in out


def test_export_names_the_file_it_wrote(call, probe_store: Path, tmp_path: Path) -> None:
    out_file = tmp_path / "probe.nc"
    assert call("export", probe_store, out_file) == (0, f"{out_file}\n", "")
    with xr.open_dataset(out_file, engine="h5netcdf") as exported:
        xr.testing.assert_identical(exported.load(), store.open_store(probe_store).load())


def test_only_a_terminal_sees_colour(probe_store: Path) -> None:
    from analysis.answer import gathered

    dataset = store.open_store(probe_store)
    answer = gathered(dataset, assess(dataset, margin=0.2))
    plain, painted = report.as_text(answer), report.as_text(answer, colour=True)
    assert "\033" not in plain
    unpainted = re.sub(r"\033\[\d+m", "", painted)
    assert re.sub(r" +\n", "\n", unpainted) == re.sub(r" +\n", "\n", plain)
    assert painted != plain


def test_what_has_no_figure_is_a_dash_and_null(call, tmp_path: Path) -> None:
    """A native gradient that is pure noise: no figure and no verdict, nor anything that looks like one."""
    from analysis import schema, synthetic
    from analysis.provenance import Code, Provenance

    world = synthetic.Planted(synthetic.power_law(0.0, 64), noise_scale=1e6)
    made = synthetic.store(arms=("native", "demote:56"), sigmas=(0.5,), images=8, world=world, seed=3)
    path = tmp_path / "noise.zarr"
    store.write(path, schema.described(made), Provenance("", {}, Code("")))
    code, out, err = call("safety", path)
    assert (code, err) == (0, "")
    assert re.search(r"^  0\.5 +- +- +- +-  unresolved( +\d+)?$", out, re.M)
    assert "demote:56: no block resolved; 3 cells: 0 safe, 0 harmful, 3 unresolved" in out
    assert imread(tmp_path / "noise-blocks.png").std() > 0.05
    code, out, _ = call("safety", path, "--json")
    cell = next(cell for cell in json.loads(out)["cells"] if cell["block"] == "total")
    assert {cell[name] for name in ("relative_bias_squared", "lower", "upper", "cosine", "norm_ratio")} == {None}
    assert cell["verdict"] == "unresolved"
