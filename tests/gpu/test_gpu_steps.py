"""Steps of the mini model on a CUDA device: twins, both engines, and memory against its estimate."""

import pytest
import torch

from analysis.file_pairs import compared
from analysis.run_folder import ADAPTER
from probes.grad import Settings as Probe
from probes.grad import prepare, resolve_arms
from train.arms import NATIVE_ARM
from train.determinism import strict_within
from train.job import prepare as job_of
from train.memory_of_run import memory_of
from train.run import run
from train.settings import Settings
from train.training_step import gradients

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def strict():
    with strict_within():
        yield


def test_twins_are_equal_to_the_byte(tmp_path):
    settings = Settings(steps=20, deterministic=True, device="cuda", precision="bf16", rank=4)
    for name in ("a", "b"):
        run(settings, tmp_path / name, resuming=False)
    assert compared(tmp_path / "a" / ADAPTER, tmp_path / "b" / ADAPTER).identical


def test_engines_agree_with_each_other_and_with_the_cpu():
    found = {}
    for engine, device in (("func", "cuda"), ("loop", "cuda"), ("loop", "cpu")):
        probe = Probe(
            sigma_grid="0.5", arms=(), images=2, draws=2, metrics=("raw",), engine=engine, chunk=4, attention="sdpa",
            model="mini", latents=None, adapter=None, rank=4, seed=0, jobs=1, threads=1, memory=1.0, device=device,
        )  # fmt: skip
        sweep = prepare(probe, (0.5,), resolve_arms(()))[0]
        found[engine, device] = sweep.measure(NATIVE_ARM, 0.5, sweep.samples(sweep.images)).by_name
    for name, expected in found["loop", "cpu"].items():
        for other in (found["func", "cuda"], found["loop", "cuda"]):
            assert not other[name].is_cuda
            assert (other[name] - expected).norm() < 1e-3 * expected.norm()


def test_memory_is_what_was_told():
    job = job_of(Settings(steps=1, device="cuda", rank=4, batch_size=8))
    told = memory_of(job)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    gradients(job, 0)
    expected = told.weights + told.adapter + told.gradients + told.activations
    assert expected / 1.5 < torch.cuda.max_memory_allocated() < 1.5 * expected
