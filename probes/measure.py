"""Gradients of the trainer's own step: an arm at one sigma, for a list of samples."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from probes.gradients import Engine, Gradients, Problem
from probes.gradients.engine import functional
from train.arms import Arm
from train.attention import routed
from train.objective import StepInput, squared_error
from train.plan import Plan, Sample
from train.step import Source, step_input

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class StepGradients:
    """Measures arms of one model. chunk: samples the engine takes at once; attention: the run's backend."""

    transformer: nn.Module
    parameters: dict[str, Tensor]
    source: Source
    engine: Engine
    chunk: int
    attention: str

    def __call__(self, arm: Arm, sigma: float, samples: Sequence[Sample]) -> Gradients:
        """loss [B] and gradients by name [B, ...] of ``samples``, in their order."""
        plan = arm.plan(sigma)
        steps = [step_input(plan, sample, sigma, self.source) for sample in samples]
        found: dict[int, Gradients] = {}
        for indices in batches(steps, self.chunk):
            batch = self._differentiate(plan, stacked([steps[i] for i in indices]))
            for row, i in enumerate(indices):
                found[i] = Gradients(batch.loss[row], {name: g[row] for name, g in batch.by_name.items()})
        for i, sample in enumerate(samples):
            for change in plan.gradient:
                found[i] = Gradients(found[i].loss, change(found[i].by_name, sample, self.source.seed))
        return Gradients(
            torch.stack([found[i].loss for i in range(len(samples))]),
            {name: torch.stack([found[i].by_name[name] for i in range(len(samples))]) for name in self.parameters},
        )

    def _differentiate(self, plan: Plan, steps: StepInput) -> Gradients:
        with executed_as(plan, self.attention), self.source.family.stretched(self.transformer, steps.rope):
            return self.engine(Problem(self.objective, self.parameters), steps)

    def objective(self, parameters: Mapping[str, Tensor], step: StepInput) -> Tensor:
        """Eq. 3 for a batch of steps: loss per sample [B]."""
        family = self.source.family
        answer = functional(self.transformer, parameters, family.arguments(step))
        return squared_error(family.velocity(answer, *step.x_sigma.shape[-2:]), step.target)


@contextmanager
def executed_as(plan: Plan, attention: str) -> Iterator[None]:
    """The precision and the attention kernel of ``plan``, else those of the run."""
    backend = plan.attention or attention
    with ExitStack() as stack:
        stack.enter_context(routed(backend, deterministic=backend != "racing"))
        if plan.dtype is not None:
            stack.enter_context(torch.autocast("cpu", DTYPES[plan.dtype], enabled=plan.dtype != "fp32"))
            stack.enter_context(warnings.catch_warnings())
            # Norms keep float32 weights under autocast, which costs torch a fused kernel and changes no number.
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        yield


def batches(steps: Sequence[StepInput], chunk: int) -> Iterator[list[int]]:
    """Indices of ``steps`` in batches of one grid and rope, at most ``chunk`` long."""
    alike: dict[object, list[int]] = {}
    for i, step in enumerate(steps):
        alike.setdefault((step.x_sigma.shape, step.rope), []).append(i)
    for indices in alike.values():
        for start in range(0, len(indices), chunk):
            yield indices[start : start + chunk]


def stacked(steps: Sequence[StepInput]) -> StepInput:
    """Batches of one as one batch."""
    first = steps[0]
    return StepInput(
        torch.cat([step.x_sigma for step in steps]),
        torch.cat([step.sigma for step in steps]),
        torch.cat([step.target for step in steps]),
        {name: torch.cat([step.condition[name] for step in steps]) for name in first.condition},
        first.rope,
    )
