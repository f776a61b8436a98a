"""Several checkpoints of one run in one store: every step is what it would be alone, and what cannot be is one line."""

import json
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.torch import load_file

from analysis import store
from analysis.entry import exit_code
from analysis.steps import at_step
from probes.cli import app
from train import model
from train.adapter import Lora, save
from train.checkpoint import sha256

pytestmark = pytest.mark.usefixtures("determinism_put_back")

METRICS = ["--metric", "raw", "--metric", "adam"]


def arguments(small_model, *more):
    """Of a small sweep over two sigma."""
    base = ["--model", small_model, "--sigma-grid", "0.4,0.8", "--images", 4, "--draws", 2, "--threads", 1]
    return ["grad", *map(str, [*base, "--arm", "demote:24", "--arm", "gain:1.5", *more])]


def probed(capsys, *given):
    """Exit code, standard output and standard error of ``probes``."""
    capsys.readouterr()
    code = exit_code(app, given, name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


def several(run, *steps):
    return [word for step in steps for word in ("--adapter", f"{run}@{step}")]


def same_bytes(one, other):
    """Whether two datasets hold the same bytes in every array but ``seconds``, and the same labels."""
    assert set(one.variables) == set(other.variables)
    return all(
        one[name].values.tobytes() == other[name].values.tobytes() for name in one.variables if name != "seconds"
    )


@pytest.fixture(scope="module")
def swept(small_model, small_run, tmp_path_factory):
    """The store of all three checkpoints."""
    out = tmp_path_factory.mktemp("several") / "steps.zarr"
    given = arguments(small_model, *several(small_run, 6, 2, 4), *METRICS, "--out", out)
    assert exit_code(app, given, name="probes") == 0
    return out


def test_every_array_leads_with_step_and_the_provenance_tells_each(swept, small_run):
    data, made = store.open_store(swept), store.provenance(swept)
    assert data.step.values.tolist() == [2, 4, 6]
    assert all(array.dims[0] == "step" for array in data.data_vars.values())
    assert data.done.dims == ("step", "sigma")
    assert data.done.values.all()
    assert data.attrs["schema_version"] == 2
    assert made.settings["steps"] == [2, 4, 6]
    folders = {step: small_run / "checkpoints" / f"step-00000{step}" for step in (2, 4, 6)}
    for step, folder in folders.items():
        assert made.hashes[f"adapter@{step}"] == model.hash_of([folder / "adapter.safetensors"])
        assert made.hashes[f"optimizer@{step}"] == model.hash_of([folder / "optimizer.safetensors"])
        assert made.settings[f"adam@{step}"] == {"step": step, "beta2": 0.98, "epsilon": 1e-6}
    chunks = sorted(file.name for file in (swept / "gram_image").glob("c.*"))
    assert chunks == [f"c.{step}.0.{sigma}.0.0.0.0.0" for step in range(3) for sigma in range(2)]


@pytest.mark.parametrize("step", [2, 6])
def test_each_step_is_the_store_of_that_checkpoint_alone(swept, small_model, small_run, tmp_path, capsys, step):
    """To the byte; and that store has no trace of steps."""
    alone = tmp_path / "alone.zarr"
    given = arguments(small_model, "--adapter", f"{small_run}@{step}", *METRICS, "--out", alone)
    assert probed(capsys, *given)[0] == 0
    found, expected = at_step(store.open_store(swept), step), store.open_store(alone)
    assert same_bytes(found, expected)
    assert "step" not in expected.dims
    assert expected.attrs["schema_version"] == 1
    assert not {"steps"} & store.provenance(alone).settings.keys()


def test_the_steps_differ(swept):
    data = store.open_store(swept)
    first, last = (at_step(data, step).gram_image.values for step in (2, 6))
    assert not np.allclose(first, last, rtol=1e-3)


def test_the_model_is_loaded_once_and_each_checkpoint_is_put_once_a_pass(
    small_model, small_run, tmp_path, capsys, monkeypatch
):
    from train import adapter

    loads, fills = [], []
    load, fill = model.load, adapter.fill
    monkeypatch.setattr(model, "load", lambda *given: loads.append(given) or load(*given))
    monkeypatch.setattr(adapter, "fill", lambda p, file: fills.append(file.parent.name) or fill(p, file))
    given = arguments(small_model, *several(small_run, 2, 4), "--out", tmp_path / "p.zarr")
    assert probed(capsys, *given)[0] == 0
    assert len(loads) == 1
    assert fills == ["step-000004", "step-000002", "step-000004"]  # looked at, back to the first, and measured at


def test_policies_have_every_step(small_model, small_run, tmp_path, capsys):
    """Inner products across sigma, of each step as they are of that checkpoint alone."""
    both, alone = tmp_path / "both.zarr", tmp_path / "alone.zarr"
    images = ["--images", 8, "--policy"]
    assert probed(capsys, *arguments(small_model, *several(small_run, 2, 6), *images, "--out", both))[0] == 0
    assert probed(capsys, *arguments(small_model, *several(small_run, 6), *images, "--out", alone))[0] == 0
    data = store.open_store(both)
    assert data.gram_policy.dims[:3] == ("step", "metric", "block")
    assert data.fold_of_image.dims == ("step", "image")
    assert same_bytes(at_step(data, 6), store.open_store(alone))
    assert not (both / "fold_means").exists()


def test_processes_share_the_cells_of_all_steps(swept, small_model, small_run, tmp_path, capsys):
    out = tmp_path / "jobs.zarr"
    given = arguments(small_model, *several(small_run, 2, 4, 6), *METRICS, "--jobs", 2, "--out", out)
    code, _, err = probed(capsys, *given)
    assert code == 0, err
    assert same_bytes(store.open_store(swept), store.open_store(out))


def test_a_dry_run_counts_every_step(small_model, small_run, tmp_path, capsys):
    out = ["--dry-run", "--json", "--out", tmp_path / "p.zarr"]
    one, three = (
        json.loads(probed(capsys, *arguments(small_model, *several(small_run, *steps), *out))[1])
        for steps in ((2,), (2, 4, 6))
    )
    for name in ("gradients", "disk"):
        assert three[name] == 3 * one[name]
    assert not (tmp_path / "p.zarr").exists()


def of_rank(run, rank, alpha):
    """Spoil checkpoint 4: another rank, or another alpha, as if the run had written it."""
    folder = run / "checkpoints" / "step-000004"
    tensors = {
        name.removeprefix("transformer."): t[:rank] if "lora_A" in name else t[:, :rank]
        for name, t in load_file(folder / "adapter.safetensors").items()
    }
    save(folder / "adapter.safetensors", tensors, Lora(rank, alpha, "x"))
    digests = {name: sha256(folder / name) for name in ("adapter.safetensors", "optimizer.safetensors")}
    (folder / "sha256.json").write_text(json.dumps(digests))


def test_what_cannot_be_one_store_is_one_line(small_model, own_run, tmp_path, capsys):
    other = shutil.copytree(own_run, tmp_path / "other")
    file = own_run / "checkpoints" / "step-000002" / "adapter.safetensors"
    link = tmp_path / "link"
    link.symlink_to(own_run)
    of_rank(shutil.copytree(own_run, tmp_path / "narrow"), 1, 4.0)
    of_rank(shutil.copytree(own_run, tmp_path / "loud"), 2, 8.0)
    cases = {
        "@3: no such checkpoint; there: 2, 4, 6": several(own_run, 2, 3),
        "another run than": [*several(own_run, 2), *several(other, 4)],
        "step 4 is given twice; give each checkpoint once": several(own_run, 4, 2, 4),
        "step 6 is given twice": [*several(own_run, 6), "--adapter", own_run],
        "step 2 is given twice": [*several(own_run, 2), *several(link, 2)],
        "a file among several; give several as RUN@STEP, of one run": [*several(own_run, 4), "--adapter", file],
        "rank 1 and alpha 4": several(tmp_path / "narrow", 2, 4),
        "rank 2 and alpha 8": several(tmp_path / "loud", 2, 4),
    }
    for says, adapters in cases.items():
        code, out, err = probed(capsys, *arguments(small_model, *adapters, "--out", tmp_path / "p.zarr"))
        assert (code, out) == (2, ""), says
        assert says in err.splitlines()[-1]
        assert "Traceback" not in err
    assert not (tmp_path / "p.zarr").exists()


def test_resuming_with_other_steps_is_refused_by_name(swept, small_model, small_run, tmp_path, capsys):
    copy = shutil.copytree(swept, tmp_path / "copy.zarr")
    code, _, err = probed(capsys, *arguments(small_model, *several(small_run, 2, 4), *METRICS, "--out", copy))
    assert code == 2
    assert "setting steps is [2, 4], it was [2, 4, 6]" in err or "setting adam@6 is absent" in err


def test_a_sweep_that_stopped_between_checkpoints_goes_on_to_the_same_bytes(
    swept, small_model, small_run, tmp_path, capsys
):
    """Cells of two steps are taken away: the second of the first step and the first of the last."""
    copy = shutil.copytree(swept, tmp_path / "copy.zarr")
    for chunk in ("c.0.1", "c.2.0"):
        (copy / "done" / chunk).unlink()
    for array in ("gram_image", "gram_draw", "loss"):
        for file in [*copy.glob(f"{array}/c.0.0.1.*"), *copy.glob(f"{array}/c.2.0.0.*")]:
            file.unlink()
    assert store.missing(copy) == [1, 4]
    code, out, _ = probed(
        capsys, *arguments(small_model, *several(small_run, 2, 4, 6), *METRICS, "--json", "--out", copy)
    )
    assert code == 0
    assert '"computed": 2' in out
    assert same_bytes(store.open_store(swept), store.open_store(copy))


@pytest.mark.slow
def test_kills_at_random_moments_change_no_byte(swept, small_model, small_run, tmp_path):
    out, generator = tmp_path / "killed.zarr", np.random.default_rng(0)
    given = arguments(small_model, *several(small_run, 2, 4, 6), *METRICS, "--out", out)
    call = [sys.executable, "-c", "from probes.cli import main; main()", *given]
    for _ in range(4):
        process = subprocess.Popen(call, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        seen = set(out.rglob("*")) if out.exists() else set()
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            if out.exists() and set(out.glob("gram_draw/c.*")) - seen:  # inside a cell's writing, or soon after
                time.sleep(float(generator.uniform(0, 0.02)))
                break
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    finished = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, finished.stderr
    assert same_bytes(store.open_store(swept), store.open_store(out))
