"""One training step of one arm, from a sample to its loss: read it here from top to bottom.

Everything random is drawn here, by name, on the CPU; what follows is a pure function of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.coupling import area_matrix, coupling
from train.crn import normal
from train.families import Family, check_latent, grid
from train.latents import Latents
from train.objective import StepInput, flow_matching, squared_error
from train.plan import Plan, Sample
from train.rope import resolve

DEFAULT_COUPLING = "area"


@dataclass(frozen=True)
class Source:
    """Where a step takes its clean latents and noise from. dtype: of the weights of the model that it feeds."""

    latents: Latents
    family: Family
    seed: int
    dtype: torch.dtype = torch.float32


def step_input(plan: Plan, sample: Sample, sigma: float, source: Source) -> StepInput:
    """The batch of one that ``plan`` makes of ``sample`` at noise level ``sigma``."""
    x0 = clean_latent(plan, sample.image, source)
    noise = noise_for(plan, sample, x0.shape, source)
    native = source.latents.shape(sample.image, source.latents.tier)
    level = shifted(plan, sigma, native, (x0.shape[-2], x0.shape[-1]))
    rope = resolve(plan.stretch, grid(source.family, *native), grid(source.family, *x0.shape[-2:]), level)
    x0, noise = x0[None], noise[None]
    at = torch.tensor([level], dtype=torch.float64).float()
    condition = {name: value[None] for name, value in source.latents.condition(sample.image).items()}
    return flow_matching(x0, noise, at, condition, rope).fed_as(source.dtype)


def step_loss(transformer: Callable[..., Any], family: Family, step: StepInput) -> Tensor:
    """Eq. 3 of a batch, per sample: [B]. transformer: the module, or what stands for it, called with keywords."""
    check_latent(family, step.x_sigma.shape[1:])
    answer = transformer(**family.arguments(step))
    return squared_error(family.velocity(answer, step.x_sigma.shape), step.target)


def clean_latent(plan: Plan, image: str, source: Source) -> Tensor:
    """x0 [C, H, W] or [C, F, H, W] on the grid of the plan."""
    latents, native = source.latents, source.latents.tier
    if plan.demote is not None:
        tier = plan.demote.of(native)
        latents.shape(image, tier)
        return latents.latent(image, tier)
    if plan.repromote is not None:
        tier = plan.repromote.of(native)
        latents.shape(image, tier)
        return latents.repromoted(image, tier)
    if plan.reencode:
        return latents.reencoded(image)
    x0 = latents.latent(image, native)
    if plan.demote_latent is not None:
        height, width = latents.shape(image, plan.demote_latent.of(native))
        rows, columns = (area_matrix(a, b).to(x0.dtype) for a, b in zip(x0.shape[-2:], (height, width), strict=True))
        return rows @ x0 @ columns.mT
    return x0


def noise_for(plan: Plan, sample: Sample, shape: torch.Size, source: Source) -> Tensor:
    """White noise of a latent's ``shape``: the native draw where the grid is native, else coupled to it."""
    native = source.latents.shape(sample.image, source.latents.tier)
    index = (sample.image, sample.draw)
    draw = normal((*shape[:-2], *native), seed=source.seed, purpose=plan.stream, index=index)

    def fresh(of: tuple[int, ...]) -> Tensor:
        return normal(of, seed=source.seed, purpose=f"{plan.stream} fresh", index=index)

    return coupling(plan.coupling or DEFAULT_COUPLING).couple(draw, (shape[-2], shape[-1]), fresh)


def shifted(plan: Plan, sigma: float, native: tuple[int, int], shape: tuple[int, int]) -> float:
    """The noise level of the step; ``shift:snr`` is sigma' = r sigma / (1 + (r - 1) sigma), r from the real grids."""
    if plan.shift is None:
        return sigma
    if plan.shift == "snr":
        if shape == native:
            raise UsageError("arm term shift:snr: this arm keeps the native grid; add demote, or give a number")
        r = ((shape[0] * shape[1]) / (native[0] * native[1])) ** 0.5
        return r * sigma / (1 + (r - 1) * sigma)
    level = sigma + float(plan.shift)
    if not 0 < level <= 1:
        raise UsageError(f"arm term shift:{plan.shift}: sigma {sigma:g} would become {level:g}; allowed: (0, 1]")
    return level
