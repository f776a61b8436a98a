"""``probes grad`` as a person uses it: what it writes, how it resumes, and every way it can be given bad input."""

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis import store
from analysis.entry import exit_code
from probes.cli import app
from train import model
from train.adapter import attach_file, save

pytestmark = pytest.mark.usefixtures("determinism_put_back")

SMALL = ["--sigma-grid", "0.5,0.9", "--images", "2", "--draws", "2", "--chunk", "4", "--threads", "1"]
RUN = [*SMALL, "--arm", "demote:48", "--arm", "redraw"]
OWN_ADAPTER = model.MINI / "adapter" / "adapter.safetensors"


def probes(capsys, *arguments):
    """Exit code, standard output and standard error of ``probes grad``."""
    capsys.readouterr()
    code = exit_code(app, ["grad", *map(str, arguments)], name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys, *arguments):
    """The one line of a command that was given bad input."""
    code, out, err = probes(capsys, *arguments)
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if line.startswith("probes: ")]
    assert len(lines) == 1
    assert err.rstrip().endswith(lines[0])
    assert "Traceback" not in err
    return lines[0]


def same_arrays(one, other):
    """Whether two stores hold the same bytes in every array but ``seconds``."""
    a, b = store.open_store(one), store.open_store(other)
    assert set(a.variables) == set(b.variables)
    return all(a[name].values.tobytes() == b[name].values.tobytes() for name in a.variables if name != "seconds")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "probe.zarr"
    assert exit_code(app, ["grad", *RUN, "--out", str(path)], name="probes") == 0
    return path


def test_the_store_holds_what_was_asked_and_how_it_was_made(reference):
    dataset, provenance = store.open_store(reference), store.provenance(reference)
    assert dataset.arm.values.tolist() == ["native", "demote:48", "redraw"]
    assert dataset.sigma.values.tolist() == [0.5, 0.9]
    assert dataset.tokens.values.tolist() == [[256, 256], [144, 144], [256, 256]]
    assert dataset.done.all()
    assert set(dataset.data_vars) >= {"gram_image", "gram_draw", "gram_cross", "loss", "seconds"}
    assert {"engine": "func", "chunk": 4, "attention": "sdpa", "seed": 0}.items() <= provenance.settings.items()
    assert provenance.environment["switch threads"] == 1
    assert set(provenance.hashes) == {"model", "adapter", "latents"}


def test_the_same_command_twice_gives_the_same_bytes(reference, tmp_path, capsys):
    assert probes(capsys, *RUN, "--out", tmp_path / "again.zarr")[0] == 0
    assert same_arrays(reference, tmp_path / "again.zarr")


def test_a_finished_store_is_left_as_it_is(reference, tmp_path, capsys):
    copy = shutil.copytree(reference, tmp_path / "copy.zarr")
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}
    code, out, _ = probes(capsys, *RUN, "--out", copy, "--json")
    assert code == 0
    assert json.loads(out)["computed"] == 0
    assert before == {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}


def test_where_gradients_are_kept_changes_no_byte(reference, tmp_path, capsys):
    assert probes(capsys, *RUN, "--memory", "0", "--out", tmp_path / "scratch.zarr")[0] == 0
    assert same_arrays(reference, tmp_path / "scratch.zarr")


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        (["--seed", "1"], "setting seed is 1, it was 0"),
        (["--engine", "loop"], "setting engine is"),
        (["--chunk", "2"], "setting chunk is 2"),
        (["--threads", "2"], "threads"),
        (["--draws", "3"], "setting draws is 3"),
        (["--metric", "weight"], "setting metrics is"),
        (["--sigma-grid", "0.5,0.8"], "setting sigmas is"),
        (["--attention", "math"], "setting attention is"),
    ],
)
def test_resuming_with_other_settings_is_refused_by_name(reference, tmp_path, capsys, changes, names):
    copy = shutil.copytree(reference, tmp_path / "copy.zarr")
    code, out, err = probes(capsys, *RUN, *changes, "--out", copy)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert names in err
    assert same_arrays(reference, copy)


def test_another_adapter_or_corpus_is_refused_too(reference, tmp_path, capsys):
    copy = shutil.copytree(reference, tmp_path / "copy.zarr")
    folder = shutil.copytree(model.MINI / "corpus", tmp_path / "corpus")
    first = min(folder.iterdir())
    Image.open(first).rotate(90).save(first)
    assert "hash latents is" in refused(capsys, *RUN, "--latents", folder, "--out", copy)
    found = model.load("mini")
    parameters, lora = attach_file(found.transformer, OWN_ADAPTER)
    next(iter(parameters.values())).data *= 2
    save(tmp_path / "other.safetensors", parameters, lora)
    assert "hash adapter is" in refused(capsys, *RUN, "--adapter", tmp_path / "other.safetensors", "--out", copy)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--sigma-grid", "0:0.5"], "sigma 0; allowed: 0 < sigma <= 1"),
        (["--sigma-grid", "0.9:0.3"], "does not increase"),
        (["--sigma-grid", ""], "is not a number"),
        (["--arm", "demote:54"], "not a multiple of the model's patch of 4"),
        (["--arm", "shrink:56"], "unknown treatment 'shrink'"),
        (["--arm", "demote:56/early:0.5"], "in training only"),
        (["--arm", "demote:56", "--arm", "demote:56"], "given twice"),
        (["--arm", "shift:0.3"], "would become"),
        (["--metric", "adams"], "metric adams: unknown"),
        (["--engine", "fast"], "engine fast: unknown"),
        (["--attention", "psychic"], "psychic"),
        (["--images", "9999"], "--images 9999: the corpus has 40"),
        (["--model", "nowhere"], "model nowhere: no"),
        (["--adapter", "nowhere.safetensors"], "nowhere.safetensors cannot be read (No such file or directory)"),
        (["--latents", "nowhere"], "nowhere: no such folder"),
        (["--draws", "0"], "draws"),
    ],
)
def test_bad_input_is_one_line_before_any_work(tmp_path, capsys, arguments, says):
    out = tmp_path / "probe.zarr"
    assert says in refused(capsys, *SMALL, *arguments, "--out", out)
    assert not out.exists()


def test_an_unreadable_picture_is_named(tmp_path, capsys):
    shutil.copy(model.MINI / "corpus" / "00_astronaut.png", tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"not a picture")
    assert "b.png: not a readable picture" in refused(
        capsys, *SMALL, "--latents", tmp_path, "--out", tmp_path / "p.zarr"
    )


def test_a_foreign_folder_is_not_written_into(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    refused(capsys, *RUN, "--out", tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_gradients_that_are_not_finite_name_their_cell_which_is_not_done(tmp_path, capsys):
    found = model.load("mini")
    parameters, lora = attach_file(found.transformer, OWN_ADAPTER)
    last = [name for name in parameters if ".lora_B." in name][-1]
    parameters[last].data[0, 0] = 3e38  # finite, as a file must be; its products are not
    save(tmp_path / "large.safetensors", parameters, lora)
    out = tmp_path / "p.zarr"
    line = refused(capsys, *RUN, "--adapter", tmp_path / "large.safetensors", "--out", out)
    for part in ("not finite", "arm native", "sigma 0.5", "image 00_astronaut", "block"):
        assert part in line
    assert not store.open_store(out).done.any()


def test_a_dry_run_prints_what_it_takes_and_writes_nothing(tmp_path, capsys):
    code, out, _ = probes(capsys, *RUN, "--dry-run", "--json", "--out", tmp_path / "p.zarr")
    budget = json.loads(out)
    assert code == 0
    assert budget["gradients"] == 3 * 2 * 2 * 2
    assert budget["tokens"] == (256 + 144 + 256) * 2 * 2 * 2
    assert budget["seconds"] > 0
    assert not (tmp_path / "p.zarr").exists()
    arm = "demote:32@0.3:0.6,attention:math@0.6"
    few = ["--sigma-grid", "0.5,0.8", "--images", "2", "--draws", "2", "--threads", "1", "--arm", arm]
    _, out, _ = probes(capsys, *few, "--dry-run", "--json", "--out", tmp_path / "p.zarr")
    assert json.loads(out)["tokens"] == 2 * 2 * (256 + 256 + 64 + 256)
    _, text, _ = probes(capsys, *RUN, "--dry-run", "--out", tmp_path / "p.zarr")
    assert all(word in text for word in ("gradients", "tokens", "memory", "disk", "time"))


def test_racing_attention_is_measured_and_said(tmp_path, capsys):
    code, _, err = probes(capsys, *SMALL, "--arm", "attention:racing", "--out", tmp_path / "p.zarr")
    assert code == 0
    assert "repeats no gradient to the bit" in err


def started(out, *arguments, limit=None):
    """A process of its own that runs ``probes grad``. limit: bytes that a file may grow to."""

    def bounded():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    call = "from probes.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", call, "grad", *arguments, "--out", str(out)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=bounded if limit else None,
    )


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path):
    """Room for the empty store and not for a cell of it."""
    arguments = [*RUN, "--draws", "4"]
    out = tmp_path / "p.zarr"
    bounded = started(out, *arguments, limit=8000)
    _, err = bounded.communicate(timeout=300)
    assert bounded.returncode == 2, err
    assert "no space left" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not store.open_store(out).done.any()
    for path in (out, tmp_path / "whole.zarr"):
        process = started(path, *arguments)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert same_arrays(tmp_path / "whole.zarr", out)


def killed_and_resumed(out: Path, kills: int, rng: np.random.Generator, arguments: list[str]) -> int:
    """SIGKILL the sweep ``kills`` times at random moments, some inside a write; then let it finish.

    Returns how many of the kills found a cell half written.
    """
    inside = 0
    for _ in range(kills):
        process = started(out, *arguments)
        in_a_write = rng.random() < 0.5
        deadline = time.monotonic() + float(rng.uniform(3, 25))
        known = set(out.rglob("*")) if out.exists() else set()
        while time.monotonic() < deadline and process.poll() is None:
            if in_a_write and out.exists() and set(out.rglob("*")) - known:
                time.sleep(float(rng.uniform(0, 0.01)))
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if out.exists():
            inside += len(list(out.glob("gram_draw/c.*"))) > len(list(out.glob("done/c.*")))
    finished = started(out, *arguments)
    _, err = finished.communicate(timeout=600)
    assert finished.returncode == 0, err
    return inside


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_no_byte(tmp_path):
    arguments = ["--sigma-grid", "0.3:0.9:24", *RUN[2:]]
    whole = started(tmp_path / "whole.zarr", *arguments)
    _, err = whole.communicate(timeout=600)
    assert whole.returncode == 0, err
    killed_and_resumed(tmp_path / "killed.zarr", 20, np.random.default_rng(0), arguments)
    assert same_arrays(tmp_path / "whole.zarr", tmp_path / "killed.zarr")


@pytest.mark.slow
def test_three_kills_change_no_byte(reference, tmp_path):
    killed_and_resumed(tmp_path / "killed.zarr", 3, np.random.default_rng(1), RUN)
    assert same_arrays(reference, tmp_path / "killed.zarr")


def test_help_answers(capsys):
    assert exit_code(app, ["grad", "--help"], name="probes") == 0
    assert "--sigma-grid" in capsys.readouterr().out


def test_processes_share_the_cells_and_change_no_byte(reference, tmp_path, capsys):
    code, _, err = probes(capsys, *RUN, "--jobs", "2", "--out", tmp_path / "jobs.zarr")
    assert code == 0, err
    assert same_arrays(reference, tmp_path / "jobs.zarr")


def test_what_is_no_store_is_refused_before_a_model_loads(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(model, "load", lambda *_: pytest.fail("the model was loaded first"))
    (tmp_path / "zarr.json").write_text("{}")
    assert exit_code(app, ["grad", "--out", str(tmp_path)], name="probes") == 2
    assert capsys.readouterr().err.splitlines() == [
        f"probes: {tmp_path}: not a probe store: its zarr.json cannot be read as one"
    ]
