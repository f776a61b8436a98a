"""What a training run takes of memory: ``train --dry-run``."""

import numpy as np
from torch import nn

from train.batch import stacked
from train.execution import executed_as
from train.families import text_tokens
from train.job import Job
from train.memory import Memory, peak, size_of, weights_of
from train.objective import StepInput
from train.plan import NATIVE, Plan, Sample
from train.step import step_input, step_loss

LOOKED_AT = 1000  # treated steps, for the plans that a run has


def memory_of(job: Job) -> Memory:
    """Estimated from the job's own step at the largest image; of a compiled step, what it would take uncompiled."""
    latents = job.source.latents
    largest = max(job.order.names, key=lambda n: job.native_tokens(n) + text_tokens(job.family, latents.condition(n)))
    adapter = size_of(job.parameters.values())
    treated = np.flatnonzero(job.schedule.treated)[:LOOKED_AT].tolist()
    steps = {NATIVE: 0} | {job.plan(step): step for step in reversed(treated)}
    found = [activations(job, largest, plan, step) for plan, step in steps.items()]
    known = [n for n in found if n is not None]
    one = size_of([latents.latent(largest, latents.tier), *latents.condition(largest).values()])
    return Memory(
        weights=weights_of(job.transformer, job.parameters),
        adapter=adapter,
        gradients=adapter,
        optimizer=2 * adapter,  # the moments
        activations=max(known) if len(known) == len(found) else None,
        gram=0,
        samples=len(job.order.names) * one,
    )


def activations(job: Job, image: str, plan: Plan, step: int) -> int | None:
    """Bytes of one batch's forward and backward at a sigma of ``step``, without the gradients of parameters."""
    sigma = float(job.sigmas(range(step, step + 1))[0, 0])
    samples = [Sample(image, draw) for draw in range(job.settings.batch_size)]
    given = stacked([step_input(plan, sample, sigma, job.source) for sample in samples])
    with executed_as(plan, job.execution):
        found = peak(
            job.transformer, lambda skeleton: differentiate(job, skeleton, given), tiled=job.execution.tiled(plan)
        )
    return None if found is None else max(0, found - size_of(job.parameters.values()))


def differentiate(job: Job, transformer: nn.Module, given: StepInput) -> None:
    """Forward and backward of one batch, as a training step makes them."""
    with job.family.stretched(transformer, given.rope):
        step_loss(transformer, job.family, given).sum().backward()
