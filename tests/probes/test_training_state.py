"""Metric ``adam``: its second moments against torch's own optimiser, and every state that it cannot be taken at."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from analysis import store
from analysis.entry import exit_code
from analysis.errors import UsageError
from probes.cli import app
from probes.metrics import Point, metric
from probes.training_state import BETA2, EPSILON, TrainingState, beside, constants, read
from train import model, tensors_file
from train.adapter import attach_file

pytestmark = pytest.mark.usefixtures("determinism_put_back")

OWN = model.MINI / "adapter" / "adapter.safetensors"


def probed(capsys, small_model, *arguments):
    """Exit code, standard output and standard error of a small ``probes grad``."""
    capsys.readouterr()
    given = ["--model", small_model, "--sigma-grid", "0.4,0.8", "--images", 3, "--draws", 2, "--threads", 1]
    code = exit_code(app, ["grad", *map(str, given), "--arm", "gain:1.5", *map(str, arguments)], name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


def refused(capsys, small_model, *arguments):
    """The one line of a probe that was given a state it cannot use."""
    code, out, err = probed(capsys, small_model, "--metric", "adam", *arguments)
    assert (code, out) == (2, ""), err
    lines = [line for line in err.splitlines() if line.startswith("probes: ")]
    assert len(lines) == 1
    assert err.rstrip().endswith(lines[0])
    return lines[0]


@pytest.mark.parametrize("steps", [1, 7])
def test_the_last_update_of_torchs_adam_without_momentum_is_the_gradient_in_this_metric(tmp_path, steps):
    """With beta1 = 0 a step is -rate g / (sqrt(v_hat) + eps) and nothing else: torch itself is the second route."""
    generator = torch.Generator().manual_seed(steps)
    p = torch.nn.Parameter(torch.randn(3, 5, generator=generator, dtype=torch.float64))
    adam = torch.optim.AdamW([p], lr=0.25, betas=(0.0, BETA2), eps=EPSILON, weight_decay=0.0)
    scales = torch.logspace(-9, 0, 15, dtype=torch.float64).reshape(3, 5)  # where eps decides, and where v does
    for _ in range(steps):
        before = p.detach().clone()
        p.grad = scales * torch.randn(3, 5, generator=generator, dtype=torch.float64)
        adam.step()
    update = ((before - p.detach()) / 0.25).flatten().numpy()
    file = tmp_path / "optimizer.safetensors"
    tensors = {"exp_avg_sq.m.lora_A.weight": adam.state[p]["exp_avg_sq"]}
    tensors_file.write(file, tensors, {"optimizer": "torch.optim.AdamW", "step": str(steps)})
    name = "m.lora_A.default.weight"
    denominators = read(file).denominators({name: p.detach().numpy()})
    found = metric("adam")(Point({}, 1.0, denominators), {name: p.grad[None].numpy()})
    assert found[name][0] == pytest.approx(update, rel=1e-9)


def test_its_inner_product_is_the_sum_written_out():
    rng = np.random.default_rng(0)
    shapes = {"a": (2, 3), "b": (4,)}
    v = {name: rng.lognormal(-12, 3, shape) for name, shape in shapes.items()}
    gradients = {name: rng.normal(size=(5, *shape)) for name, shape in shapes.items()}
    state = TrainingState("-", v, step=3, beta2=0.9, epsilon=1e-3)  # pyright: ignore[reportArgumentType]
    found = metric("adam")(Point({}, 1.0, state.denominators(gradients_of_one(gradients))), gradients)
    for i in range(5):
        for j in range(5):
            for name, shape in shapes.items():
                total = 0.0
                for at in np.ndindex(*shape):
                    v_hat = v[name][at] / (1 - 0.9**3)
                    total += gradients[name][i][at] * gradients[name][j][at] / (v_hat**0.5 + 1e-3) ** 2
                assert found[name][i] @ found[name][j] == pytest.approx(total, rel=1e-12)


def gradients_of_one(gradients):
    return {name: values[0] for name, values in gradients.items()}


def dense_gram(small_model, adapter, samples, sigma):
    """[samples, samples]: the sum of Eq. 6a over all parameters, by plain backward passes and loops in float64."""
    from train.batch import stacked
    from train.plan import NATIVE
    from train.step import Source, step_input, step_loss

    found = model.load(str(small_model))
    parameters, _ = attach_file(found.transformer, adapter)
    source = Source(model.latents_of(found, None), found.family, 0)
    state = load_file(adapter.parent / "optimizer.safetensors")
    step = int(adapter.parent.name.removeprefix("step-"))
    rows = []
    for sample in samples:
        loss = step_loss(found.transformer, found.family, stacked([step_input(NATIVE, sample, sigma, source)])).sum()
        row = []
        for name, g in zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True):
            v = state["exp_avg_sq." + name.replace(".default.", ".")].double() / (1 - 0.98**step)
            row += (g.double() / (v.sqrt() + 1e-6)).flatten().tolist()
        rows.append(row)
    return np.array([[sum(x * y for x, y in zip(a, b, strict=True)) for b in rows] for a in rows])


def test_a_run_is_probed_by_its_own_second_moments(small_model, small_run, tmp_path, capsys):
    """The whole way: RUN@step, the constants of its run.json, every metric in one sweep, and the state's hash."""
    from train.plan import Sample

    out, metrics = tmp_path / "p.zarr", ["--metric", "weight", "--metric", "adam", "--metric", "raw"]
    code, _, err = probed(capsys, small_model, "--adapter", f"{small_run}@4", *metrics, "--out", out)
    assert code == 0, err
    assert "adam: second moments after step 4, beta2 0.98, eps 1e-06" in err
    data, made = store.open_store(out).load(), store.provenance(out)
    assert data.metric.values.tolist() == ["weight", "adam", "raw"]
    adapter = small_run / "checkpoints" / "step-000004" / "adapter.safetensors"
    samples = [Sample("0", 0), Sample("0", 1)]
    expected = dense_gram(small_model, adapter, samples, 0.8)
    cell = data.gram_draw.sel(metric="adam", sigma=0.8, image="0").sum("block").values
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs((cell[0, :, 0] - expected) / scale).max() < 1e-5
    assert np.abs((cell[1, :, 0] - 1.5 * expected) / scale).max() < 1e-5
    assert made.settings["adam"] == {"step": 4, "beta2": 0.98, "epsilon": 1e-6}
    assert made.hashes["optimizer"] == model.hash_of([adapter.parent / "optimizer.safetensors"])
    assert made.hashes["adapter"] == model.hash_of([adapter])

    alone = tmp_path / "alone.zarr"
    assert probed(capsys, small_model, "--adapter", f"{small_run}@4", "--out", alone)[0] == 0
    raw = store.open_store(alone).load()
    for name in ("gram_image", "gram_draw", "gram_cross"):  # other metrics beside it change no bit of raw
        assert raw[name].sel(metric="raw").values.tobytes() == data[name].sel(metric="raw").values.tobytes()
    assert not {"optimizer"} & store.provenance(alone).hashes.keys()
    assert "adam" not in store.provenance(alone).settings


def test_metrics_share_the_gradients(small_model, small_run, tmp_path, capsys, monkeypatch):
    """However many there are, every arm and image is differentiated once."""
    from probes.measure import StepGradients

    counts, measured = [], StepGradients.__call__

    def counted(self, arm, sigma, samples):
        counts.append(len(samples))
        return measured(self, arm, sigma, samples)

    monkeypatch.setattr(StepGradients, "__call__", counted)
    totals = []
    for metrics in (["raw"], ["raw", "weight", "adam"]):
        counts.clear()
        given = [word for name in metrics for word in ("--metric", name)]
        assert (
            probed(capsys, small_model, "--adapter", small_run, *given, "--out", tmp_path / str(len(metrics)))[0] == 0
        )
        totals.append(sum(counts))
    assert totals[0] == totals[1]


def test_a_run_alone_is_its_last_checkpoint_and_a_file_in_it_is_the_same(small_model, small_run, tmp_path, capsys):
    file = small_run / "checkpoints" / "step-000006" / "adapter.safetensors"
    for name, adapter in (("run", small_run), ("file", file)):
        code, _, err = probed(capsys, small_model, "--adapter", adapter, "--metric", "adam", "--out", tmp_path / name)
        assert (code, "after step 6, beta2 0.98" in err) == (0, True)
    one, other = (store.open_store(tmp_path / name).load() for name in ("run", "file"))
    assert one.gram_image.values.tobytes() == other.gram_image.values.tobytes()
    assert store.provenance(tmp_path / "run").settings == store.provenance(tmp_path / "file").settings


def test_the_shipped_adapter_has_a_state_with_torchs_constants():
    state = read(beside(OWN))
    assert (state.step, state.beta2, state.epsilon, state.share_of_zeros) == (30, 0.999, 1e-8, 0.0)
    assert constants(OWN) == (BETA2, EPSILON)


def spoiled(change):
    """Changes metadata and tensors of a checkpoint's state, as if the run had written it so."""

    def spoil(run):
        folder = run / "checkpoints" / "step-000004"
        file = folder / "optimizer.safetensors"
        about, tensors = {"optimizer": "torch.optim.AdamW", "step": "4"}, load_file(file)
        about, tensors = change(about, tensors)
        tensors_file.write(file, tensors, about)
        (folder / "sha256.json").unlink()
        return folder / "adapter.safetensors"

    return spoil


def renamed(tensors):
    return {name.replace("exp_avg_sq", "momentum_buffer"): t for name, t in tensors.items() if "exp_avg_sq" in name}


def with_first(tensors, change):
    first = min(name for name in tensors if name.startswith("exp_avg_sq."))
    return tensors | {first: change(tensors[first])}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a, t: (a | {"step": "0"}, t), "the state at step 0, before the first gradient"),
        (lambda a, t: (a | {"step": "0"}, {}), "the state at step 0, before the first gradient"),
        (lambda a, t: ({}, t), "does not say after how many steps"),
        (lambda a, t: (a | {"optimizer": "torch.optim.SGD"}, renamed(t)), "holds a state of torch.optim.SGD"),
        (lambda a, t: ({"step": "4"}, renamed(t)), "holds momentum_buffer."),
        (lambda a, t: (a, with_first(t, lambda v: v[:1])), "the state of another adapter: "),
        (lambda a, t: (a, {n: v for n, v in t.items() if "to_q" not in n}), "tensors without a partner"),
        (lambda a, t: (a, with_first(t, lambda v: -1 - v)), "no mean squares"),
        (lambda a, t: (a, with_first(t, lambda v: v * float("nan"))), "no mean squares"),
    ],
    ids=["step 0", "empty", "no step", "sgd", "momentum", "shape", "names", "negative", "nan"],
)
def test_a_state_that_is_none_of_adams_for_this_adapter_is_one_line(
    small_model, own_run, tmp_path, capsys, change, says
):
    line = refused(capsys, small_model, "--adapter", spoiled(change)(own_run), "--out", tmp_path / "p.zarr")
    assert says in line
    assert "give --adapter RUN or RUN@STEP" in line
    assert not (tmp_path / "p.zarr").exists()


def test_an_adapter_without_a_state_says_how_to_get_one(small_model, own_run, tmp_path, capsys):
    alone = shutil.copy(own_run / "adapter.safetensors", tmp_path / "alone.safetensors")
    out = ("--out", tmp_path / "p.zarr")
    assert f"no optimiser state (optimizer.safetensors) beside {alone}" in refused(
        capsys, small_model, "--adapter", alone, *out
    )
    end = own_run / "adapter.safetensors"
    assert f"give --adapter {own_run}, which is its last" in refused(capsys, small_model, "--adapter", end, *out)
    assert "a fresh adapter has no optimiser state" in refused(capsys, small_model, *out)


def test_a_state_beside_another_adapter_of_its_shapes_is_found_by_its_digest(small_model, own_run, tmp_path, capsys):
    folders = [own_run / "checkpoints" / f"step-00000{step}" for step in (4, 6)]
    shutil.copy(folders[0] / "adapter.safetensors", folders[1] / "adapter.safetensors")
    for adapter in (own_run, folders[1] / "adapter.safetensors"):
        line = refused(capsys, small_model, "--adapter", adapter, "--out", tmp_path / "p.zarr")
        assert "is not what the run wrote (its SHA-256 is another)" in line


@pytest.mark.parametrize(
    ("suffix", "says"),
    [
        ("@3", "@3: no such checkpoint; there: 2, 4, 6"),
        ("@last", "after @ stands a checkpoint's step"),
        ("@", "after @"),
    ],
)
def test_a_checkpoint_that_is_not_there_is_told_with_those_that_are(
    small_model, small_run, tmp_path, capsys, suffix, says
):
    assert says in refused(capsys, small_model, "--adapter", f"{small_run}{suffix}", "--out", tmp_path / "p.zarr")


def test_a_folder_that_is_no_run_is_told(small_model, tmp_path, capsys):
    assert "holds no run of train; give a run's, or a LoRA file" in refused(
        capsys, small_model, "--adapter", tmp_path, "--out", tmp_path / "p.zarr"
    )


def test_a_run_that_does_not_tell_its_constants_is_told(small_model, own_run, tmp_path, capsys):
    made = json.loads((own_run / "run.json").read_text())
    del made["settings"]["beta2"]
    (own_run / "run.json").write_text(json.dumps(made))
    line = refused(capsys, small_model, "--adapter", own_run, "--out", tmp_path / "p.zarr")
    assert "says nothing of beta2 and epsilon" in line


def test_elements_that_no_gradient_has_reached_are_told(small_model, own_run, tmp_path, capsys):
    adapter = spoiled(lambda a, t: (a, with_first(t, lambda v: v * 0)))(own_run)
    code, _, err = probed(capsys, small_model, "--adapter", adapter, "--metric", "adam", "--out", tmp_path / "p.zarr")
    assert code == 0
    assert "warning: no gradient has reached" in err


def test_python_without_denominators_is_told():
    with pytest.raises(UsageError, match="metric adam: no second moments of w; give a Point their denominators"):
        metric("adam")(Point({}), {"w": np.zeros((2, 3))})
