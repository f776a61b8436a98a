"""What a gradient engine is given and what it answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from train.objective import StepInput

#: Parameters by name and a batch of B step inputs -> loss per sample [B].
Objective = Callable[[Mapping[str, Tensor], StepInput], Tensor]


@dataclass(frozen=True)
class Problem:
    """A pure objective and the point it is differentiated at.

    objective: (parameters, step) -> loss [B], with no hidden randomness; parameters: by name, detached.
    """

    objective: Objective
    parameters: Mapping[str, Tensor]


@dataclass(frozen=True)
class Gradients:
    """loss: [B]; by_name: parameter name -> [B, *parameter shape]."""

    loss: Tensor
    by_name: dict[str, Tensor]


class Engine(Protocol):
    """Per-sample gradients of ``problem`` at a batch of steps of one grid."""

    def __call__(self, problem: Problem, steps: StepInput) -> Gradients: ...


def functional(module: nn.Module, parameters: Mapping[str, Tensor], **arguments: object) -> object:
    """``module`` called with ``parameters`` in the place of its own of the same names."""
    return torch.func.functional_call(module, dict(parameters), (), arguments)
