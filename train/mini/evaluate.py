"""Losses of the mini model and of its linear yardstick on the same crops, noise and sigma."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from train.crn import normal
from train.families import unconditional
from train.families.flux import Flux
from train.mini.pretrain import latent
from train.mini.wiener import Wiener
from train.objective import flow_matching, interpolate, velocity_target
from train.step import step_loss

BATCH = 32


@dataclass(frozen=True)
class Loss:
    """Mean losses over crops at one sigma, and the standard error of their paired difference."""

    sigma: float
    model: float
    linear: dict[str, float]  # by basis
    difference: float  # model - best linear
    standard_error: float


def noise_for(pixels: Tensor, sigma: float, seed: int) -> tuple[Tensor, Tensor]:
    """Clean latents and noise [N, 3, S, S] of uint8 crops [N, S, S, 3] at one sigma."""
    x0 = latent(pixels)
    return x0, normal(x0.shape, seed=seed, purpose="mini evaluate", index=(f"{sigma:.6f}",))


def linear_losses(
    filters: dict[str, Wiener], pixels: Tensor, sigmas: Sequence[float], *, seed: int
) -> dict[float, dict[str, Tensor]]:
    """Losses [N] of each filter on crops, by sigma: the yardstick, which no model changes."""
    return {
        sigma: {name: _filter_loss(wiener, *noise_for(pixels, sigma, seed), sigma) for name, wiener in filters.items()}
        for sigma in sigmas
    }


def losses(
    model: FluxTransformer2DModel, pixels: Tensor, linear: dict[float, dict[str, Tensor]], *, seed: int
) -> list[Loss]:
    """``model`` beside ``linear`` on the same crops (uint8 [N, S, S, 3]), noise and sigma."""
    family = Flux(model.config, channels=3)
    rows = []
    for sigma, by_basis in linear.items():
        x0, noise = noise_for(pixels, sigma, seed)
        parts = zip(x0.split(BATCH), noise.split(BATCH), strict=True)
        of_model = torch.cat([_model_loss(model, family, *part, sigma) for part in parts]).double()
        means = {name: float(loss.mean()) for name, loss in by_basis.items()}
        gap = of_model - by_basis[min(means, key=lambda name: means[name])]
        rows.append(Loss(sigma, float(of_model.mean()), means, float(gap.mean()), float(gap.std() / len(gap) ** 0.5)))
    return rows


@torch.no_grad()
def _model_loss(model: FluxTransformer2DModel, family: Flux, x0: Tensor, noise: Tensor, sigma: float) -> Tensor:
    level = torch.full((len(x0),), sigma)
    return step_loss(model, family, flow_matching(x0, noise, level, unconditional(family, len(x0))))


def _filter_loss(wiener: Wiener, x0: Tensor, noise: Tensor, sigma: float) -> Tensor:
    level = torch.full((len(x0),), sigma)
    parts = zip(interpolate(x0, noise, level).split(BATCH), velocity_target(x0, noise).split(BATCH), strict=True)
    return torch.cat([(wiener.velocity(x, sigma) - v.double()).square().flatten(1).mean(1) for x, v in parts])
