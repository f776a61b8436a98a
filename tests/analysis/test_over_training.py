"""``analysis`` on a store of several checkpoints, as a user and as a script call it."""

import json
from pathlib import Path

import pytest
import xarray as xr
from matplotlib.image import imread

from analysis import gate as gates
from analysis import schema, store, synthetic
from analysis.cli import app
from analysis.entry import exit_code
from analysis.gate import Decision, Gate
from analysis.provenance import Code, Provenance
from analysis.steps import at_step, joined

PROVENANCE = Provenance("probes grad", {"seed": 0, "steps": [100, 200, 400]}, Code("0.1.0"))
BIAS = {100: (0.8, 0.02), 200: (0.2, 0.02), 400: (0.02, 0.02)}
ARM = "demote:56"


@pytest.fixture(scope="module")
def parts() -> dict[int, xr.Dataset]:
    """``demote:56`` is harmful at 0.3 after 100 steps, at the margin after 200, and safe everywhere after 400."""
    made = {
        step: synthetic.store(
            arms=("native", "redraw", ARM), sigmas=(0.3, 0.9), blocks=("double.0", "single.0"),
            metrics=("raw", "adam"), images=16, draws=4, relative_bias={ARM: bias}, seed=1,
        )
        for step, bias in BIAS.items()
    }  # fmt: skip
    return {step: schema.described(part) for step, part in made.items()}


@pytest.fixture(scope="module")
def path(parts: dict[int, xr.Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("steps") / "steps.zarr"
    store.write(path, joined(parts), PROVENANCE)
    return path


@pytest.fixture(scope="module")
def alone(parts: dict[int, xr.Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint after 100 steps in a store of its own."""
    path = tmp_path_factory.mktemp("alone") / "steps.zarr"
    store.write(path, parts[100], PROVENANCE)
    return path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]):
    def call(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(app, [str(argument) for argument in arguments], name="analysis")
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def told(call, *arguments: object) -> dict:
    code, out, err = call("safety", *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_every_step_is_answered_as_it_would_be_alone(call, path: Path, alone: Path) -> None:
    found, expected = told(call, path), told(call, alone)
    assert found["steps"] == [100, 200, 400]
    assert {cell["step"] for cell in found["cells"]} == {100, 200, 400}
    assert len(found["cells"]) == 3 * len(expected["cells"])
    first = [{k: v for k, v in cell.items() if k != "step"} for cell in found["cells"] if cell["step"] == 100]
    assert first == expected["cells"]
    assert "step" not in expected["cells"][0]
    assert "steps" not in expected
    for name in ("windows", "windows_in_every_block", "harmful_windows"):
        own = [{k: v for k, v in w.items() if k != "step"} for w in found[name][ARM] if w["step"] == 100]
        assert own == expected[name][ARM]
    assert expected.keys() | {"steps"} == found.keys()


def test_verdicts_and_windows_change_over_training(call, path: Path) -> None:
    found = told(call, path, "--metric", "adam")
    at = {
        (cell["step"], cell["sigma"]): cell["verdict"]
        for cell in found["cells"]
        if (cell["arm"], cell["block"]) == (ARM, "total")
    }
    assert (at[100, 0.3], at[200, 0.3], at[400, 0.3]) == ("harmful", "unresolved", "safe")
    assert {cell["metric"] for cell in found["cells"]} == {"adam"}
    windows = {window["step"]: window["sigmas"] for window in found["windows"][ARM]}
    assert windows == {100: [0.9], 200: [0.9], 400: [0.3, 0.9]}
    assert [window["step"] for window in found["harmful_windows"][ARM]] == [100]


def test_one_step_is_told_as_its_own_store(call, path: Path, alone: Path) -> None:
    found, expected = told(call, path, "--step", 100), told(call, alone)
    assert found["steps"] == [100]
    assert [{k: v for k, v in cell.items() if k != "step"} for cell in found["cells"]] == expected["cells"]
    _, one, _ = call("safety", path, "--step", 100, "--png", path.with_name("a.png"))
    _, other, _ = call("safety", alone, "--png", alone.with_name("a.png"))
    assert one.split("Store:")[0] == other.split("Store:")[0]
    assert path.with_name("a-blocks.png").exists()


def test_the_report_has_every_step_and_one_picture(call, path: Path) -> None:
    code, out, err = call("safety", path)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.replace(str(path.parent), "").splitlines())) <= 80
    assert "at each of 3 checkpoints (after 100, 200, 400" in " ".join(out.split())
    table = out.split(f"{ARM} (sum over blocks)")[1].split("\n\n")[0].splitlines()
    assert [line for line in table if line.startswith("step")] == ["step 100", "step 200", "step 400"]
    assert "harmful" in table[table.index("step 100") + 1]
    assert "safe" in table[table.index("step 400") + 1]
    assert "step 400: safe at 0.3 to 0.9 (2 sigmas)" in out
    picture = imread(path.with_name("steps-safety.png"))
    assert picture.shape[0] > 400
    assert len({tuple(pixel) for pixel in picture.reshape(-1, 4)[::7].tolist()}) > 10


@pytest.mark.parametrize(
    ("gate", "more", "code", "says"),
    [
        (f"{ARM}@0.9:0.9", (), 0, "safe, after each of 100, 200, 400 steps in the sum over blocks"),
        (f"{ARM}@0.3:0.9", (), 1, "harmful, after 100 steps at sigma 0.3, after correction for 6 looks"),
        (f"{ARM}@0.3:0.9", ("--step", 400), 0, "safe, in the sum over blocks at each of 2"),
        (f"{ARM}@0.3:0.3", ("--step", 200), 3, "unresolved, not shown to be safe at sigma 0.3"),
        (f"{ARM}@0.3:0.9", ("--step", 100), 1, "harmful, at sigma 0.3, after correction for 2 looks"),
    ],
)
def test_a_gate_asks_for_every_step_unless_one_is_named(call, path: Path, gate, more, code, says) -> None:
    found, out, _ = call("safety", path, "--gate", gate, *more)
    assert found == code
    assert says in " ".join(out.split())
    assert call("safety", path, "--gate", gate, *more, "--json")[0] == code


def decision(verdict: str) -> Decision:
    return Decision(Gate(ARM, 0.3, 0.9), verdict, (0.3, 0.9), "because")


def test_steps_join_into_one_decision() -> None:
    safe, harmful, open_ = decision("safe"), decision("harmful"), decision("unresolved")
    assert gates.over_steps({1: safe, 2: safe}).verdict == "safe"
    assert gates.over_steps({1: safe, 2: open_}).verdict == "unresolved"
    assert gates.over_steps({1: open_, 2: harmful}, [3]).reason == "after 2 steps because"
    lacking = gates.over_steps({1: safe}, [3])
    assert (lacking.verdict, lacking.reason) == ("unresolved", "no sigma is done after 3 steps")


def test_a_sweep_on_its_way_tells_what_it_has(call, path: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun.zarr"
    dataset = store.open_store(path).load()
    dataset["done"].values[:] = [[True, True], [True, False], [False, False]]
    store.write(begun, dataset, PROVENANCE)
    found = told(call, begun)
    assert found["steps"] == [100, 200]
    assert "after 400 steps no cell is done, left out" in found["warnings"]
    assert "after 200 steps: sigma 0.9 not done, left out" in found["warnings"]
    assert call("safety", begun, "--gate", f"{ARM}@0.3:0.3")[0] == 1
    assert call("safety", begun, "--gate", "redraw@0.3:0.3")[0] == 3
    assert "not done" in call("show", begun)[1]
    dataset["done"].values[:] = False
    empty = tmp_path / "empty.zarr"
    store.write(empty, dataset, PROVENANCE)
    assert call("safety", empty) == (
        2,
        "",
        "analysis: no cell of this store is done; resume the sweep that writes it\n",
    )


def test_show_lists_steps_and_their_cells(call, path: Path) -> None:
    _, out, _ = call("show", path)
    assert "schema version 2, 6 of 6 cells done" in out
    assert "  steps        100, 200, 400\n" in out
    rows = [line.split()[:3] for line in out.splitlines() if " done " in line and "cells" not in line]
    assert rows == [[str(step), sigma, "done"] for step in BIAS for sigma in ("0.3", "0.9")]


def test_export_takes_all_or_one(call, path: Path, parts: dict[int, xr.Dataset], tmp_path: Path) -> None:
    assert call("export", path, tmp_path / "all.nc")[0] == 0
    with xr.open_dataset(tmp_path / "all.nc", engine="h5netcdf") as whole:
        xr.testing.assert_equal(at_step(whole.load(), 200), parts[200])
    assert call("export", path, tmp_path / "one.nc", "--step", 200)[0] == 0
    with xr.open_dataset(tmp_path / "one.nc", engine="h5netcdf") as one:
        xr.testing.assert_equal(one.load(), parts[200])
        assert one.attrs["schema_version"] == 1


@pytest.mark.parametrize(
    "arguments",
    [("safety", "--marks"), ("policy", "--policy", ARM), ("calibrate", "--repeats", 100)],
    ids=["marks", "policy", "calibrate"],
)
def test_what_is_about_one_checkpoint_asks_which(call, path: Path, arguments) -> None:
    code, out, err = call(arguments[0], path, *arguments[1:])
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "100, 200, 400" in err
    assert "with --step" in err


def test_steps_that_are_not_there_are_told(call, path: Path, alone: Path) -> None:
    assert call("safety", path, "--step", 300) == (
        2,
        "",
        "analysis: step 300 is not in this store; it has 100, 200, 400\n",
    )
    code, _, err = call("safety", alone, "--step", 100)
    assert code == 2
    assert "of one adapter and has no steps; leave --step out" in err


def test_policies_of_one_step(call, tmp_path: Path) -> None:
    made = {
        step: synthetic.policy_store(signed_bias={ARM: bias}, sigmas=(0.25, 0.75), images=8, draws=8, noise_scale=0.3)
        for step, bias in ((10, 0.8), (20, 0.0))
    }
    path = tmp_path / "p.zarr"
    store.write(path, joined(made), PROVENANCE)
    found = {}
    for step in made:
        code, out, _ = call("policy", path, "--policy", ARM, "--step", step, "--json")
        assert code == 0
        found[step] = json.loads(out)["policies"][0]["relative_bias_squared"]
    assert found[10] > 0.3 > abs(found[20])
