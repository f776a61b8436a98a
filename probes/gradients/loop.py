"""Per-sample gradients by a plain backward pass a sample: slow, obvious, and at home everywhere."""

import torch

from probes.gradients.engine import Gradients, Problem
from train.objective import StepInput


def loop(problem: Problem, steps: StepInput) -> Gradients:
    """Gradients of every sample of ``steps``, one after the other. Memory is that of a batch of one."""
    parameters = {name: p.detach().clone().requires_grad_(True) for name, p in problem.parameters.items()}
    losses, gradients = [], []
    for i in range(len(steps.x_sigma)):
        one = slice(i, i + 1)
        step = StepInput(
            steps.x_sigma[one],
            steps.sigma[one],
            steps.target[one],
            {name: value[one] for name, value in steps.condition.items()},
            steps.rope,
        )
        loss = problem.objective(parameters, step)[0]
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        losses.append(loss.detach())
        gradients.append(found)
    by_name = {
        name: torch.stack([torch.zeros_like(p) if g[k] is None else g[k] for g in gradients])
        for k, (name, p) in enumerate(parameters.items())
    }
    return Gradients(torch.stack(losses), by_name)
