"""``probes horizon`` as a person uses it, on a model of two blocks: its runs, how it resumes, and bad input."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file

from analysis.entry import exit_code
from analysis.horizon import store
from probes.cli import app
from probes.horizon import kept
from train.run import run
from train.settings import Settings

pytestmark = pytest.mark.usefixtures("determinism_put_back")

STEPS = "1,2,4,6"
TRAINED = {"rank": 2, "threads": 1, "learning_rate": 1e-2, "batch_size": 1, "deterministic": True}


@pytest.fixture(scope="module")
def tiny(tiny_flux):
    """Folder of a Flux of two blocks on 16 x 16 pixels and three pictures."""
    return tiny_flux(16, 3)


@pytest.fixture(scope="module")
def warmed(tiny, tmp_path_factory):
    """The adapter of a checkpoint after four steps, its optimiser's state beside it."""
    out = tmp_path_factory.mktemp("warmed") / "run"
    run(Settings(model=str(tiny), steps=4, checkpoint_every=4, **TRAINED), out, resuming=False)
    return out / "checkpoints" / "step-000004" / "adapter.safetensors"


def options(tiny, warmed):
    return [
        "--model", str(tiny), "--adapter", str(warmed), "--steps", STEPS, "--seeds", "2", "--doses", "1/2,1",
        "--arm", "repromote:8@0.3", "--jobs", "1", "--learning-rate", "0.01",
    ]  # fmt: skip


def horizon(capsys, *arguments):
    """Exit code, standard output and standard error."""
    capsys.readouterr()
    code = exit_code(app, ["horizon", *map(str, arguments)], name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def reference(tiny, warmed, tmp_path_factory):
    out = tmp_path_factory.mktemp("reference") / "h.zarr"
    assert exit_code(app, ["horizon", *options(tiny, warmed), "--out", str(out)], name="probes") == 0
    return out


def same(one, other):
    """Whether two stores hold the same bytes in every array."""
    a, b = store.read(one), store.read(other)
    assert set(a.variables) == set(b.variables)
    return all(
        a[name].values.tobytes() == b[name].values.tobytes() for name in a.variables if a[name].dtype.kind != "U"
    )


def test_the_store_holds_every_run_and_how_it_was_made(reference):
    held, origin = store.read(reference), store.provenance(reference)
    assert held["arm"].values.tolist() == ["native", "1/2", "1", *[f"jitter {i}" for i in range(1, 9)]]
    assert held["step"].values.tolist() == [1, 2, 4, 6]
    assert held["block"].values.tolist() == ["transformer_blocks.0", "single_transformer_blocks.0"]
    assert held["done"].values.all()
    squares = np.diagonal(held["gram"].sum("block").values, axis1=-2, axis2=-1)
    assert (squares[..., 0] > 0).all()
    assert (squares[..., 3:] > 0).all()
    assert ((squares[..., 1] > 0) == (held["treated"].values > 0)).all()
    assert set(origin.hashes) == {"model", "adapter", "latents", "optimizer"}
    assert origin.settings["arm"] == "repromote:8@0.3"
    assert origin.certificate is not None
    assert origin.certificate["granted"]
    assert not list(reference.rglob("*.safetensors"))
    assert reference.with_suffix(".png").stat().st_size > 10_000


def test_doses_0_and_1_are_runs_of_the_trainer_to_the_byte(tiny, tmp_path, monkeypatch):
    """A cold start, as the trainer's own; the positions are looked at before they are dropped."""
    monkeypatch.setattr(kept, "drop", lambda path, seed: None)
    monkeypatch.setattr(kept, "end", lambda path: None)
    arguments = [
        "--model", str(tiny), "--start", "cold", "--rank", "2", "--steps", "3", "--seeds", "1", "--doses", "1/2,1",
        "--arm", "repromote:8@0.3", "--jobs", "1", "--learning-rate", "0.01", "--jitters", "0", "--seed", "5",
    ]  # fmt: skip
    assert exit_code(app, ["horizon", *arguments, "--out", str(tmp_path / "h.zarr")], name="probes") == 0
    base = Settings(model=str(tiny), steps=3, seed=5, **TRAINED)
    for place, arm in ((0, "native"), (2, "repromote:8@0.3")):
        run(replace(base, arm=arm), tmp_path / str(place), resuming=False)
        trained = load_file(tmp_path / str(place) / "adapter.safetensors")
        single = sorted(name for name in trained if ".single_" in name)
        found = np.sort(kept.read(tmp_path / "h.zarr", 0, place, "3/single_transformer_blocks.0"))
        expected = np.sort(np.concatenate([trained[name].numpy().reshape(-1) for name in single]))
        assert found.tobytes() == expected.tobytes()


def test_a_finished_store_is_left_as_it_is_and_told_again(reference, tiny, warmed, tmp_path, capsys):
    copy = shutil.copytree(reference, tmp_path / "copy.zarr")
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}
    code, out, _ = horizon(capsys, *options(tiny, warmed), "--out", copy, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["treatment"] == "repromote:8@0.3"
    assert {entry["dose"] for entry in told["horizons"]} == {"1"}
    assert before == {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}
    assert not (tmp_path / "copy.png").exists()
    code, out, _ = horizon(capsys, *options(tiny, warmed), "--out", copy, "--png", tmp_path / "p.png")
    assert code == 0
    assert "Ruler horizon" in out
    assert (tmp_path / "p.png").exists()


def test_a_job_that_ends_between_runs_goes_on_to_the_same_bytes(reference, tiny, warmed, tmp_path, capsys, monkeypatch):
    write, left = kept.write, [5]

    def dying(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        write(*arguments)

    monkeypatch.setattr(kept, "write", dying)
    code, _, _ = horizon(capsys, *options(tiny, warmed), "--out", tmp_path / "h.zarr")
    assert code == 130
    assert store.missing(tmp_path / "h.zarr") == [0, 1]
    assert len(list((tmp_path / "h.zarr" / kept.FOLDER).glob("*.safetensors"))) == 5
    left[0] = 100
    assert horizon(capsys, *options(tiny, warmed), "--out", tmp_path / "h.zarr")[0] == 0
    assert left[0] == 100 - (2 * 11 - 5)
    assert same(reference, tmp_path / "h.zarr")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (["--learning-rate", "0.02"], "setting learning_rate is 0.02"),
        (["--doses", "1/4,1/2"], "setting ladder doses"),
        (["--steps", "5"], "setting ladder steps"),
        (["--jitters", "9"], "setting ladder jitters is 9"),
        (["--seeds", "3"], "setting seeds is 3, it was 2"),
        (["--arm", "repromote:8"], "setting arm is"),
    ],
)
def test_another_job_is_not_mixed_into_a_store(reference, tiny, warmed, capsys, changes, names):
    code, out, err = horizon(capsys, *options(tiny, warmed), *changes, "--out", reference)
    assert (code, out) == (2, "")
    assert names in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        (["--doses", "0,1"], 2, "dose 0; allowed: 0 < dose <= 1"),
        (["--doses", "1,2"], 2, "dose 2; allowed: 0 < dose <= 1"),
        (["--doses", "1/3,1"], 2, "1 after 1/3; each is twice the one before"),
        (["--doses", "1"], 2, "one dose has no half"),
        (["--doses", "half,1"], 2, "'half' is no number"),
        (["--steps", "4,2"], 2, "each larger than the last"),
        (["--steps", "0"], 2, "whole numbers from 1"),
        (["--steps", "many"], 2, "--steps many"),
        (["--jitters", "3"], 2, "takes 8 or more; 0 leaves it out"),
        (["--jitter-size", "0"], 2, "--jitter-size 0"),
        (["--start", "tepid"], 2, "--start tepid: takes warm or cold"),
        (["--start", "cold"], 2, "a cold start makes a fresh one"),
        (["--arm", "shrink:8"], 2, "unknown treatment 'shrink'"),
        (["--arm", "native"], 2, "makes the native step everywhere"),
        (["--arm", "repromote:8@0.999"], 2, "treats none of the 6 steps of seed 0"),
        (["--adapter", "nowhere.safetensors"], 2, "nowhere.safetensors"),
        (["--attention", "racing"], 3, "--deterministic with attention racing"),
        (["--arm", "attention:racing"], 3, "attention racing"),
    ],
)
def test_bad_input_is_one_line_before_any_work(tiny, warmed, tmp_path, capsys, changes, code, says):
    out = tmp_path / "h.zarr"
    found, printed, err = horizon(capsys, *options(tiny, warmed), *changes, "--out", out)
    assert (found, printed) == (code, "")
    assert says in err.splitlines()[-1]
    assert err.count("probes: ") == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("deterministic = false", "deterministic = false; a horizon takes runs that repeat to the byte"),
        ("steps = 9", "steps; those of a horizon are a ladder: take it out, and give --steps"),
    ],
)
def test_settings_of_a_file_that_a_horizon_has_from_elsewhere_are_refused(tiny, warmed, tmp_path, capsys, line, says):
    (tmp_path / "more.toml").write_text(line + "\n")
    given = [*options(tiny, warmed), "--config", tmp_path / "more.toml", "--out", tmp_path / "h.zarr", "--dry-run"]
    code, out, err = horizon(capsys, *given)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_picture_that_has_no_folder_is_told_before_anything_is_run(tiny, warmed, tmp_path, capsys):
    given = [*options(tiny, warmed), "--out", tmp_path / "h.zarr", "--png", tmp_path / "none" / "h.png"]
    code, out, err = horizon(capsys, *given)
    assert (code, out) == (2, "")
    assert err.splitlines() == [f"probes: no folder {tmp_path / 'none'} to write h.png in: make it first"]
    assert not (tmp_path / "h.zarr").exists()


def test_an_adapter_without_its_optimiser_is_no_warm_start(tiny, warmed, tmp_path, capsys):
    shutil.copy(warmed, tmp_path / "alone.safetensors")
    _, _, err = horizon(capsys, *options(tiny, warmed), "--adapter", tmp_path / "alone.safetensors")
    assert "no optimizer.safetensors beside it" in err.splitlines()[-1]


def test_a_dry_run_says_what_it_takes_and_writes_nothing(tiny, warmed, tmp_path, capsys):
    out = tmp_path / "h.zarr"
    code, printed, _ = horizon(capsys, *options(tiny, warmed), "--dry-run", "--json", "--out", out)
    budget = json.loads(printed)
    assert code == 0
    assert (budget["runs"], budget["steps"]) == (22, 6)
    assert budget["gradients"] >= 22 * 6
    assert not out.exists()
    assert "time" in horizon(capsys, *options(tiny, warmed), "--dry-run", "--out", out)[1]


@pytest.mark.slow
def test_kills_at_any_moment_and_two_processes_change_no_byte(reference, tiny, warmed, tmp_path):
    call, out = [sys.executable, "-c", "from probes.cli import main; main()", "horizon"], tmp_path / "h.zarr"
    arguments = [*options(tiny, warmed), "--jobs", "2", "--out", str(out)]
    rng = np.random.default_rng(0)
    for runs in (1, 4, 9, 15):
        process = subprocess.Popen([*call, *arguments], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and process.poll() is None and done_runs(out) < runs:
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.2)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(1.5)  # its processes see that it is gone, and end
    finished = subprocess.run([*call, *arguments], check=False, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert same(reference, out)


def done_runs(out):
    """Runs of a store that are kept or in a seed that is done."""
    if not out.exists():
        return 0
    whole = 2 - len(store.missing(out))
    return 11 * whole + len(list((out / kept.FOLDER).glob("[0-9]*.safetensors")))
