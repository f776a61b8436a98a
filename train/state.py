"""Everything a step changes or leaves behind, as named tensors: kept and put back."""

from collections.abc import Mapping

from torch import Tensor

from train import optimizer
from train.adapter import plain_name
from train.job import Job


def snapshot(job: Job) -> dict[str, Tensor]:
    """A copy of adapter and optimiser state, under ``adapter.``, ``exp_avg.`` and ``exp_avg_sq.``."""
    adapter = {f"adapter.{plain_name(name)}": p for name, p in job.parameters.items()}
    named = adapter | optimizer.state_of(job.adamw, job.parameters)
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def put_back(job: Job, kept: Mapping[str, Tensor], step: int) -> None:
    """Undo the steps after ``step``, to the byte."""
    for name, p in job.parameters.items():
        p.data.copy_(kept[f"adapter.{plain_name(name)}"])
    job.adamw.state.clear()
    if step:
        optimizer.restore(job.adamw, job.parameters, kept, step)


def gradients_of(job: Job) -> dict[str, Tensor]:
    """A copy of the gradient, under ``gradient.``."""
    return {
        f"gradient.{plain_name(name)}": p.grad.detach().clone()
        for name, p in job.parameters.items()
        if p.grad is not None
    }
