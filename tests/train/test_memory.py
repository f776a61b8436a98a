"""What ``train --dry-run`` says of a run's memory, against what its steps allocate."""

import pytest
import torch

from train import memory, model
from train.attention import route
from train.job import prepare
from train.memory_of_run import memory_of
from train.run import describe
from train.tensor_latents import TensorLatents
from train.training_step import gradients

pytestmark = pytest.mark.usefixtures("determinism_put_back")


@pytest.mark.parametrize("changes", [{}, {"batch_size": 3, "activation_checkpointing": True}, {"weights": "bf16"}])
def test_a_run_takes_what_was_told(changes, job_of):
    job = job_of(**changes)
    told = memory_of(job)
    with memory.Allocations() as allocated:
        gradients(job, 0)
    assert allocated.most / 1.5 < told.activations + told.gradients < 1.5 * allocated.most
    adapter = sum(4 * p.numel() for p in job.parameters.values())
    assert (told.adapter, told.gradients, told.optimizer) == (adapter, adapter, 2 * adapter)
    assert told.total == sum((told.weights, 4 * adapter, told.activations, told.samples))
    assert torch.isfinite(torch.cat([p.grad.flatten() for p in job.parameters.values()])).all()


def test_what_saves_memory_is_told_to(job_of):
    plain, half, checkpointed = (
        memory_of(job_of(**how)) for how in ({}, {"weights": "bf16"}, {"activation_checkpointing": True})
    )
    assert half.weights == pytest.approx(plain.weights / 2, rel=0.1)
    assert half.activations < plain.activations
    assert checkpointed.activations < 0.8 * plain.activations
    assert memory_of(job_of(batch_size=3)).activations == pytest.approx(3 * plain.activations, rel=0.1)


def test_the_longest_text_is_counted_wherever_it_stands(settings_of, tiny):
    family = model.load(str(tiny)).family
    latents = {name: {64: torch.zeros(family.channels, 64, 64)} for name in ("a", "b")}
    told = []
    for texts in ({"a": 1, "b": 1}, {"a": 1, "b": 400}, {"a": 400, "b": 1}):
        conditions = {
            name: {key: torch.zeros([n or tokens for n in shape]) for key, shape in family.condition_shapes.items()}
            for name, tokens in texts.items()
        }
        told.append(memory_of(prepare(settings_of(), TensorLatents(family, 64, latents, conditions))))
    assert told[1] == told[2]
    assert told[1].activations > 1.05 * told[0].activations


def test_the_estimate_leaves_no_trace(job_of):
    """Neither in the model nor in the counts of attention: numbers of a step are the same after it."""
    job = job_of(deterministic=True)
    losses = gradients(job, 0).losses
    found = {name: p.grad.clone() for name, p in job.parameters.items()}
    memory_of(job)
    again = gradients(job, 0)
    assert (again.losses == losses).all()
    assert all(torch.equal(p.grad, found[name]) for name, p in job.parameters.items())
    assert not any(type(x).__name__ == "FakeTensor" for x in memory.tensors_of(job.transformer))
    assert route.in_force == []


def test_the_dry_run_prints_it(settings_of, capsys):
    describe(settings_of())
    assert "memory     weights" in capsys.readouterr().err


def test_a_step_that_looks_at_numbers_is_not_known():
    assert memory.peak(torch.nn.Linear(2, 2), lambda model: float(model.bias.sum())) is None
    told = memory.Memory(1, 1, 1, 1, None, 0, 0)
    assert told.total is None
    assert "activations not known, since the model looks at numbers" in str(told)
