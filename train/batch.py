"""Steps that can go through a model together: same grid, same positions, texts of one length."""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import torch

from train.objective import StepInput


def alike(keys: Iterable[Hashable], at_most: int) -> Iterator[list[int]]:
    """Positions of equal ``keys``, in order, in runs of at most ``at_most``."""
    positions: dict[Hashable, list[int]] = {}
    for i, key in enumerate(keys):
        positions.setdefault(key, []).append(i)
    for indices in positions.values():
        for start in range(0, len(indices), at_most):
            yield indices[start : start + at_most]


def batches(steps: Sequence[StepInput], at_most: int) -> Iterator[list[int]]:
    """Positions of ``steps`` in batches of one grid, rope and length of text, at most ``at_most`` long."""
    texts = (tuple((name, value.shape) for name, value in step.condition.items()) for step in steps)
    return alike(((step.x_sigma.shape, step.rope, text) for step, text in zip(steps, texts, strict=True)), at_most)


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
