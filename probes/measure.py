"""Gradients of the trainer's own step: an arm at one sigma, for a list of samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from analysis.errors import UsageError
from probes.gradients import Engine, Gradients, Problem
from probes.gradients.engine import functional
from probes.gradients.func import func
from train.arms import Arm
from train.batch import batches, stacked
from train.execution import RACING, Execution, executed_as
from train.objective import StepInput
from train.overflow import in_forward
from train.plan import Plan, Sample
from train.step import Source, step_input, step_loss


@dataclass(frozen=True)
class StepGradients:
    """Measures arms of one model. chunk: samples the engine takes at once; attention: the run's backend.

    device: where transformer and parameters are; losses and gradients come back on the CPU.
    checkpointed: the transformer computes activations again in the backward pass.
    """

    transformer: nn.Module
    parameters: dict[str, Tensor]
    source: Source
    engine: Engine
    chunk: int
    attention: str
    device: str = "cpu"
    checkpointed: bool = False

    def __post_init__(self) -> None:
        check_engine(self.engine, checkpointed=self.checkpointed)
        if self.checkpointed:
            check_parameters(self.transformer, self.parameters)
        family = self.source.family
        if family.loop_only and self.engine is func:
            raise UsageError(f"engine func: not for {family.name}, because {family.loop_only}; take --engine loop")

    def __call__(self, arm: Arm, sigma: float, samples: Sequence[Sample]) -> Gradients:
        """loss [B] and gradients by name [B, ...] of ``samples``, in their order."""
        plan = arm.plan(sigma)
        steps = [step_input(plan, sample, sigma, self.source) for sample in samples]
        found: dict[int, Gradients] = {}
        for indices in batches(steps, self.chunk):
            batch = self._differentiate(plan, stacked([steps[i] for i in indices]))
            for i in (i for row, i in enumerate(indices) if not batch.loss[row].isfinite()):
                raise UsageError(
                    f"loss not finite: arm {arm.text}, sigma {sigma:g}, image {samples[i].image} draw "
                    f"{samples[i].draw}, {self._overflowing(plan, steps[i])}; the cell is not written; look at that "
                    "image, or use a wider dtype"
                )
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
        with executed_as(plan, self.execution(plan)), self.source.family.stretched(self.transformer, steps.rope):
            found = self.engine(Problem(self.objective, self.parameters), steps.to(self.device))
        return Gradients(found.loss.cpu(), {name: gradient.cpu() for name, gradient in found.by_name.items()})

    def _overflowing(self, plan: Plan, step: StepInput) -> str:
        """Where the forward pass of one step leaves the finite numbers."""
        with executed_as(plan, self.execution(plan)), self.source.family.stretched(self.transformer, step.rope):
            return in_forward(
                self.source.family, self.transformer, lambda: self.objective(self.parameters, step.to(self.device))
            )

    def execution(self, plan: Plan) -> Execution:
        """How a step of ``plan`` is executed."""
        deterministic = (plan.attention or self.attention) != RACING
        return Execution(self.attention, deterministic=deterministic, device=self.device)

    def objective(self, parameters: Mapping[str, Tensor], step: StepInput) -> Tensor:
        """Eq. 3 for a batch of steps: loss per sample [B]."""
        return step_loss(partial(functional, self.transformer, parameters), self.source.family, step)


def check_engine(engine: Engine, *, checkpointed: bool) -> None:
    """UsageError where activations are to be computed again by an engine that cannot."""
    if checkpointed and engine is func:
        raise UsageError(
            "--activation-checkpointing with engine func: torch.func cannot compute activations again; "
            "take --engine loop"
        )


def check_parameters(transformer: nn.Module, parameters: Mapping[str, Tensor]) -> None:
    """ValueError where activations would be computed again at another point than they were computed at."""
    own = dict(transformer.named_parameters())
    if any(own[name].data_ptr() != value.data_ptr() for name, value in parameters.items()):
        raise ValueError("activations are computed again with the transformer's own parameters; measure at those")
