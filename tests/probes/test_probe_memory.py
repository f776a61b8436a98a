"""What a probe does to save memory, and what its dry run says of it."""

import json
import sys

import pytest
import torch

from analysis.entry import exit_code
from analysis.errors import UsageError
from probes.cli import app
from probes.grad import Settings, prepare, resolve_arms
from probes.measure import StepGradients
from probes.memory_of_sweep import sigmas_of
from train import memory, model
from train.arms import NATIVE_ARM, parse
from train.execution import device_named
from train.plan import Sample

pytestmark = pytest.mark.usefixtures("determinism_put_back")

SMALL = ["--sigma-grid", "0.5", "--images", "2", "--draws", "2", "--chunk", "4", "--threads", "1", "--dry-run"]


def probes(capsys, *arguments):
    """Exit code, standard output and standard error of ``probes grad``."""
    capsys.readouterr()
    code = exit_code(app, ["grad", *SMALL, *map(str, arguments)], name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


def settings(**changes):
    given = {
        "sigma_grid": "0.5", "arms": ("demote:48",), "images": 2, "draws": 2, "metrics": ("raw",), "engine": "loop",
        "chunk": 4, "attention": "sdpa", "model": "mini", "latents": None, "adapter": None, "rank": 4, "seed": 0,
        "jobs": 1, "threads": 1, "memory": 1.0,
    }  # fmt: skip
    return Settings(**given | changes)


def prepared(**changes):
    asked = settings(**changes)
    return prepare(asked, (0.5,), resolve_arms(asked.arms))[0]


def test_the_dry_run_tells_memory_within_half_of_what_is_allocated(capsys, tmp_path):
    told = {}
    for engine in ("func", "loop"):
        code, out, err = probes(capsys, "--engine", engine, "--arm", "demote:48", "--json", "--out", tmp_path / "no")
        assert code == 0
        told[engine] = json.loads(out)["memory_of_process"]
        assert "memory     weights" in err
        sweep = prepared(engine=engine)
        with memory.Allocations() as allocated:
            sweep.measure(NATIVE_ARM, 0.5, sweep.samples(sweep.images))
        assert allocated.most / 1.5 < told[engine]["activations"] < 1.5 * allocated.most
        assert told[engine]["total"] == sum(n for name, n in told[engine].items() if name != "total")
        size = sum(p.numel() * p.element_size() for p in sweep.measure.transformer.parameters())
        assert told[engine]["weights"] + told[engine]["adapter"] == pytest.approx(size, rel=0.01)
    assert told["loop"]["activations"] < 0.5 * told["func"]["activations"]
    a, n, d, blocks = 2, 2, 2, len(sweep.blocks)
    assert told["loop"]["gram"] == 8 * blocks * ((a * n) ** 2 + n * (a * d) ** 2 + n * a * d * a)


def test_memory_is_looked_at_once_for_each_way_an_arm_steps():
    grid = (0.2, 0.4, 0.6, 0.7, 0.9)
    assert sorted(sigmas_of(parse("demote:48@0.8,attention:math@0.5"), grid)) == [0.2, 0.6, 0.9]
    assert sigmas_of(parse("demote:48"), grid) == [0.2]


def test_checkpointing_saves_memory_and_changes_no_gradient_by_more_than_rounding():
    plain, again = prepared(), prepared(activation_checkpointing=True)
    found, most = [], []
    for sweep in (plain, again):
        with memory.Allocations() as allocated:
            found.append(sweep.measure(NATIVE_ARM, 0.5, [Sample(sweep.images[0], 0)]).by_name)
        most.append(allocated.most)
    assert most[1] < 0.6 * most[0]
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-4, atol=1e-7)


def test_checkpointing_is_refused_where_it_cannot_work(capsys, monkeypatch):
    monkeypatch.setattr(model, "load", lambda *_: pytest.fail("the model was loaded first"))
    code, _, err = probes(capsys, "--activation-checkpointing")
    assert code == 2
    assert err.strip() == (
        "probes: --activation-checkpointing with engine func: torch.func cannot compute activations again; "
        "take --engine loop"
    )


def test_checkpointing_elsewhere_than_at_the_models_own_parameters_is_an_error():
    """Recomputed with those, its gradients would be of two points at once."""
    measure = prepared(activation_checkpointing=True).measure
    assert isinstance(measure, StepGradients)
    moved = {name: p + 1 for name, p in measure.parameters.items()}
    with pytest.raises(ValueError, match="transformer's own parameters"):
        StepGradients(measure.transformer, moved, measure.source, measure.engine, 1, "sdpa", checkpointed=True)


def test_arms_share_one_copy_of_the_weights(monkeypatch):
    loads = []
    load = model.load
    monkeypatch.setattr(model, "load", lambda *given: loads.append(given) or load(*given))
    sweep = prepared(arms=("demote:48", "redraw", "attention:math"), weights="bf16")
    assert len(loads) == 1
    assert len(sweep.arms) == 4
    frozen = [p for p in sweep.measure.transformer.parameters() if not p.requires_grad]
    assert {p.dtype for p in frozen} <= {torch.bfloat16, torch.float32}
    assert sum(p.numel() for p in frozen if p.dtype == torch.bfloat16) > 0.9 * sum(p.numel() for p in frozen)


@pytest.mark.parametrize(
    "how", [["--attention", "flash"], ["--arm", "attention:flash"], ["--arm", "demote:48@0.8,attention:flash@0.3:0.8"]]
)
def test_a_missing_package_is_told_before_a_model_loads(how, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    monkeypatch.setattr(model, "load", lambda *_: pytest.fail("the model was loaded first"))
    code, _, err = probes(capsys, *how)
    assert code == 2
    assert "not installed; pip install 'sigma-probes[flash]'" in err


def test_an_unknown_or_absent_device_is_refused(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for device in ("cuda", "tpu"):
        code, _, err = probes(capsys, "--device", device)
        assert code == 2
        assert f"--device {device}" in err
    with pytest.raises(UsageError, match="takes auto, cpu or cuda"):
        device_named("tpu")
