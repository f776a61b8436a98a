"""One optimiser step: gradients of the probed step's own loss, accumulated, changed as the arm says, and applied."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from analysis.errors import UsageError
from train import optimizer
from train.attention import AttentionCalls
from train.batch import batches, stacked
from train.execution import executed_as
from train.families import image_tokens
from train.job import Job
from train.objective import StepInput
from train.overflow import in_backward, in_forward
from train.plan import Plan, Sample
from train.step import step_input, step_loss


@dataclass(frozen=True)
class Outcome:
    """Of one step: sigma and losses [samples], without weights; latent sides and image tokens as the model saw them.

    norm: of the gradient, before it was clipped.
    """

    sigmas: np.ndarray
    losses: np.ndarray
    sides: tuple[tuple[int, int], ...]
    tokens: int
    norm: float
    treated: bool
    calls: AttentionCalls


def advance(job: Job, step: int) -> Outcome:
    """Take ``step``, counted from 0."""
    outcome = gradients(job, step)
    update(job, step, outcome.norm)
    return outcome


def update(job: Job, step: int, norm: float) -> None:
    """Apply the gradient in the parameters, which has that ``norm``: clipped, at the learning rate of ``step``."""
    if job.settings.clip > 0:
        clip_grads_with_norm_(job.parameters.values(), job.settings.clip, torch.tensor(norm))
    job.adamw.param_groups[0]["lr"] = optimizer.rate(step, job.settings)
    job.adamw.step()


def gradients(job: Job, step: int, *, eager: bool = False, named: bool = False) -> Outcome:
    """Leave the gradient of ``step`` in the parameters.

    eager: not through the compiler; named: attention calls are counted with the names of their modules. Raises
    UsageError for a loss or a gradient that is not finite, with step, block, image and sigma.
    """
    samples, plan = job.order.of(step), job.plan(step)
    sigmas = job.sigmas(range(step, step + 1))[0]
    inputs = [
        step_input(plan, sample, sigma, job.source) for sample, sigma in zip(samples, sigmas.tolist(), strict=True)
    ]
    weights = torch.from_numpy(job.weighting.weights(sigmas)) / len(samples)
    losses = torch.zeros(len(samples), dtype=torch.float64)
    call, size = job.transformer if eager else job.call, job.settings.batch_size
    job.adamw.zero_grad()
    with executed_as(plan, job.execution, job.transformer if named else None) as calls:
        for start in range(0, len(inputs), size):
            for indices in batches(inputs[start : start + size], size):
                at = [start + i for i in indices]
                given = stacked([inputs[i] for i in at]).to(job.execution.device)
                with job.family.stretched(job.transformer, given.rope):
                    loss = step_loss(call, job.family, given)
                    (loss * weights[at].to(loss.device)).sum().backward()
                losses[at] = loss.detach().cpu().double()
    change(job, plan, step)
    norm = float(get_total_norm([p.grad for p in job.parameters.values() if p.grad is not None]))
    check_finite(job, step, inputs, losses, norm)
    sides = tuple((given.x_sigma.shape[-2], given.x_sigma.shape[-1]) for given in inputs)
    tokens = sum(image_tokens(job.family, given.x_sigma.shape[1:]) for given in inputs)
    return Outcome(sigmas, losses.numpy(), sides, tokens, norm, bool(job.schedule.treated[step]), calls)


def change(job: Job, plan: Plan, step: int) -> None:
    """The arm's known doses, at the gradient of the whole step; a parameter that the loss does not reach gets zero."""
    found: dict[str, Tensor] = {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in job.parameters.items()
    }
    for treat in plan.gradient:
        found = treat(found, Sample("step", step), job.settings.seed)
    for name, p in job.parameters.items():
        p.grad = found[name].to(p.dtype)


def check_finite(job: Job, step: int, inputs: list[StepInput], losses: Tensor, norm: float) -> None:
    """Raise UsageError where the step cannot be applied; what was written before it stays."""
    bad = (~losses.isfinite()).nonzero().flatten().tolist()
    if not bad and np.isfinite(norm):
        return
    at = bad[0] if bad else 0
    if bad:
        what, where = (
            f"loss {losses[at]:g}",
            in_forward(job.family, job.transformer, lambda: loss_of(job, step, inputs[at])),
        )
    else:
        found = {name: p.grad for name, p in job.parameters.items() if p.grad is not None}
        what, where = f"gradient of norm {norm:g}", in_backward(job.family, found)
    image, sigma = job.order.of(step)[at].image, inputs[at].sigma.item()
    raise UsageError(
        f"step {step + 1}: {what}, {where} (image {image}, sigma {sigma:.4f}); "
        "the step is not applied: take a smaller --learning-rate (a run of train goes on from its last checkpoint) or "
        "a wider precision, or look at that image"
    )


def loss_of(job: Job, step: int, given: StepInput) -> Tensor:
    """The loss of one sample of ``step``, eagerly."""
    with executed_as(job.plan(step), job.execution), job.family.stretched(job.transformer, given.rope):
        return step_loss(job.transformer, job.family, given.to(job.execution.device))
