"""What a sweep takes of memory in each process: ``probes grad --dry-run``."""

from collections.abc import Mapping
from functools import partial

import numpy as np
from torch import Tensor, nn

from probes.gradients import Problem
from probes.gradients.engine import functional
from probes.measure import StepGradients
from probes.room import Room
from probes.sweep import Sweep
from train.arms import Arm
from train.batch import stacked
from train.execution import executed_as
from train.families import text_tokens
from train.memory import Memory, peak, size_of, weights_of
from train.objective import StepInput
from train.plan import Sample
from train.step import step_input, step_loss

FLOAT64 = 8  # bytes


def memory_of(sweep: Sweep, measure: StepGradients, arms: tuple[Arm, ...], tokens: np.ndarray, room: Room) -> Memory:
    """Estimated from each arm's own step at its largest image. tokens: [arms, images]."""
    latents = measure.source.latents
    texts = np.array([text_tokens(measure.source.family, latents.condition(image)) for image in sweep.images])
    found = [
        activations(measure, arm, sigma, sweep.images[int((row + texts).argmax())], sweep.draws * sweep.group)
        for arm, row in zip(arms, tokens, strict=True)
        for sigma in sigmas_of(arm, sweep.sigmas)
    ]
    known = [n for n in found if n is not None]
    largest = sweep.images[int((tokens[0] + texts).argmax())]
    one = size_of([latents.latent(largest, latents.tier), *latents.condition(largest).values()])
    held = room.means + (room.draws if room.cross else 0)
    a, n, d, blocks = len(arms), len(sweep.images), sweep.draws, len(sweep.metrics) * len(sweep.blocks)
    of_block = (a * n) ** 2 + n * (a * d) ** 2 + (n * a * d * a if room.cross else 0)
    return Memory(
        weights=weights_of(measure.transformer, measure.parameters),
        adapter=size_of(measure.parameters.values()),
        gradients=room.working + (held if room.in_memory else 0),
        optimizer=0,
        activations=max(known) if len(known) == len(found) else None,
        gram=FLOAT64 * blocks * of_block,
        samples=len(arms) * len(sweep.images) * one,
    )


def sigmas_of(arm: Arm, sigmas: tuple[float, ...]) -> list[float]:
    """The first sigma of each way in which the arm makes a step on this grid."""
    return list({arm.plan(sigma): sigma for sigma in reversed(sigmas)}.values())


def activations(measure: StepGradients, arm: Arm, sigma: float, image: str, samples: int) -> int | None:
    """Bytes that the engine takes for as many of ``samples`` as it takes at once, their gradients too."""
    plan, chunk = arm.plan(sigma), min(measure.chunk, samples)
    given = stacked([step_input(plan, Sample(image, draw), sigma, measure.source) for draw in range(chunk)])
    execution = measure.execution(plan)
    with executed_as(plan, execution):
        return peak(
            measure.transformer, lambda skeleton: differentiate(measure, skeleton, given), tiled=execution.tiled(plan)
        )


def differentiate(measure: StepGradients, transformer: nn.Module, given: StepInput) -> object:
    """Per-sample gradients of one chunk, by the engine."""
    family, own = measure.source.family, dict(transformer.named_parameters())

    def objective(parameters: Mapping[str, Tensor], step: StepInput) -> Tensor:
        return step_loss(partial(functional, transformer, parameters), family, step)

    with family.stretched(transformer, given.rope):
        return measure.engine(Problem(objective, {name: own[name].detach() for name in measure.parameters}), given)
