"""AdamW over an adapter's parameters, its learning rate, and its state as named tensors."""

from collections.abc import Mapping
from math import cos, pi

import torch
from torch import Tensor, nn

from analysis.errors import UsageError
from train.adapter import plain_name
from train.settings import Settings

MOMENTS = ("exp_avg", "exp_avg_sq")


def adamw(parameters: Mapping[str, nn.Parameter], settings: Settings) -> torch.optim.AdamW:
    """The optimiser of ``settings``, whose implementation is named and not left to torch's choice."""
    return torch.optim.AdamW(
        parameters.values(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
        foreach=settings.adamw == "foreach",
        fused=settings.adamw == "fused",
    )


def rate(step: int, settings: Settings) -> float:
    """The learning rate of ``step``, counted from 0: linear warm-up, then constant, or down to 0 at the run's end."""
    warm = min(1.0, (step + 1) / (settings.warmup + 1))
    done = max(0, step - settings.warmup) / max(1, settings.steps - settings.warmup)
    after = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + cos(pi * done)) / 2}[settings.schedule]
    return settings.learning_rate * warm * after


def state_of(optimizer: torch.optim.AdamW, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Both moments of every parameter, as ``exp_avg.NAME`` and ``exp_avg_sq.NAME``; empty before the first step."""
    return {
        f"{moment}.{plain_name(name)}": optimizer.state[p][moment]
        for name, p in parameters.items()
        if p in optimizer.state
        for moment in MOMENTS
    }


def restore(
    optimizer: torch.optim.AdamW, parameters: Mapping[str, nn.Parameter], state: Mapping[str, Tensor], step: int
) -> None:
    """Put the moments that ``state_of`` gave after ``step`` steps into ``optimizer``."""
    for name, p in parameters.items():
        found = {moment: state.get(f"{moment}.{plain_name(name)}") for moment in MOMENTS}
        for moment, value in found.items():
            if value is None or value.shape != p.shape:
                got = "none" if value is None else list(value.shape)
                raise UsageError(f"optimiser state {moment} of {plain_name(name)}: {got}; it takes {list(p.shape)}")
            found[moment] = value.to(p.device, p.dtype, copy=True)
        # On the CPU, as AdamW itself keeps it, except where it is fused.
        counted = torch.tensor(float(step), device=p.device if optimizer.defaults["fused"] else "cpu")
        optimizer.state[p].update(step=counted, **found)
