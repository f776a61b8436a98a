"""Every notebook runs from top to bottom on a small store; its own comparison with the program is part of it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import pytest

from analysis import schema, store, synthetic
from analysis.horizon import store as horizon
from analysis.horizon.schema import OF_CELL
from analysis.provenance import Code, Provenance

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "analysis" / "notebooks"
TRAIN = "from train.cli import main; main()"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notebook") / "probe.zarr"
    bias = {"demote:56": (0.8, 0.2, 0.0), "demote:48": (1.5, 0.5, 0.1)}
    arms = ("native", "redraw", *bias)
    made = synthetic.store(arms=arms, sigmas=(0.3, 0.6, 0.9), images=10, draws=2, relative_bias=bias, cross=False)
    store.write(path, schema.described(made), Provenance("", {}, Code("")))
    return path


def outputs_of(notebook: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Everything that a notebook shows when it runs from top to bottom."""
    monkeypatch.delenv("MPLBACKEND", raising=False)  # so that the kernel keeps pictures
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of the kernel's own machinery
    cells = jupytext.read(NOTEBOOKS / f"{notebook}.py")
    ran = nbclient.NotebookClient(cells, timeout=120, kernel_name="python3").execute()
    return [output for cell in ran.cells for output in cell.get("outputs", [])]


@pytest.mark.notebook
def test_the_curve_of_sigma_safety_is_that_of_the_program(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGMA_PROBES_STORE", str(path))
    outputs = outputs_of("sigma_safety", monkeypatch)
    assert any("equal: redraw, demote:56, demote:48" in output.get("text", "") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.notebook
def test_policies_by_hand_are_those_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sigmas = (0.125, 0.375, 0.625, 0.875)
    bias = {"demote:56": (0.4, -0.4, 0.4, -0.4), "demote:48": (2.0, 0.5, 0.1, 0.0)}
    cost = {"demote:56": 0.8, "demote:48": 0.6}
    made = synthetic.policy_store(signed_bias=bias, sigmas=sigmas, noise_scale=0.3, seconds=cost)
    store.write(tmp_path / "policy.zarr", made, Provenance("", {}, Code("")))
    monkeypatch.setenv("SIGMA_PROBES_POLICY_STORE", str(tmp_path / "policy.zarr"))
    outputs = outputs_of("policy", monkeypatch)
    text = "".join(output.get("text", "") for output in outputs)
    assert "equal: demote:56, demote:48" in text
    line = next(line for line in text.splitlines() if line.startswith("demote:56") and "mean of lengths" in line)
    lengths, mean = float(line.split()[4]), float(line.split()[-1])
    assert lengths == pytest.approx(0.4, rel=0.1)  # biases that cancel: no sigma by itself shows it
    assert mean < 0.1
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1


@pytest.mark.notebook
def test_the_horizon_by_hand_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = synthetic.horizon_store()
    horizon.create(tmp_path / "horizon.zarr", made.assign(done=made["done"] & False), Provenance("", {}, Code("")))
    for seed in range(made.sizes["seed"]):
        arrays = {name: made[name].values[seed] for name in OF_CELL}
        horizon.write_cell(tmp_path / "horizon.zarr", seed, arrays)
    monkeypatch.setenv("SIGMA_PROBES_HORIZON_STORE", str(tmp_path / "horizon.zarr"))
    outputs = outputs_of("horizon", monkeypatch)
    text = "".join(output.get("text", "") for output in outputs)
    assert "equal by hand and by program: 1/2, 1" in text
    assert "horizon 8\n" in text
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1


def shortened(study: str, steps: int, variants: int, into: Path) -> Path:
    """A study of examples/story with fewer steps and its first few variants alone."""
    text = (ROOT / "examples" / "story" / f"{study}.toml").read_text()
    settings, *rest = text.replace("steps = 300", f"steps = {steps}").split("[[variants]]")
    last, *arms = rest[-1].split("[[arms]]")
    kept = [*rest[:-1], last][:variants]
    file = into / f"{study}.toml"
    file.write_text("[[variants]]".join([settings, *kept]) + "[[arms]]" + "[[arms]]".join(arms))
    return file


@pytest.mark.notebook
@pytest.mark.slow
def test_the_story_is_told_from_runs_of_forty_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty-odd processes: the studies of examples/story, then the notebook over what they made."""
    for study, steps, variants in (("story", 40, 2), ("learning_rate", 10, 2)):
        file = shortened(study, steps, variants, tmp_path)
        command = [sys.executable, "-c", TRAIN, "study", str(file), "--jobs", "2", "--out", str(tmp_path / study)]
        subprocess.run(command, check=True, timeout=1500, cwd=tmp_path)
    monkeypatch.setenv("SIGMA_PROBES_STORY", str(tmp_path / "story"))
    outputs = outputs_of("end_points", monkeypatch)
    text = "".join(output.get("text", "") for output in outputs)
    assert "equal verdicts by hand and by program: s075, s05, always, rope" in text
    assert text.count(": 0 tensors differ") == 3
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 6
