"""Per-sample gradients by ``torch.func``: vmap over the samples of grad of one sample's loss."""

from torch import Tensor
from torch.func import grad_and_value, vmap

from probes.gradients.engine import Gradients, Problem
from train.objective import StepInput


def func(problem: Problem, steps: StepInput) -> Gradients:
    """Gradients of every sample of ``steps`` in one vectorised pass. Memory grows with the batch."""
    names = tuple(steps.condition)

    def loss(
        parameters: dict[str, Tensor], x_sigma: Tensor, sigma: Tensor, target: Tensor, *condition: Tensor
    ) -> Tensor:
        # One sample, without a batch axis.
        one = StepInput(
            x_sigma[None],
            sigma[None],
            target[None],
            {name: value[None] for name, value in zip(names, condition, strict=True)},
            steps.rope,
        )
        return problem.objective(parameters, one)[0]

    tensors = (steps.x_sigma, steps.sigma, steps.target, *(steps.condition[name] for name in names))
    per_sample = vmap(grad_and_value(loss), in_dims=(None, *[0] * len(tensors)))
    by_name, losses = per_sample(dict(problem.parameters), *tensors)
    return Gradients(losses.detach(), {name: by_name[name].detach() for name in problem.parameters})
