"""Losses of the mini model and of its linear yardstick on the same crops, noise and sigma."""

from dataclasses import dataclass

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from train.crn import normal
from train.families.flux import Flux
from train.mini.pretrain import latent, loss_of
from train.mini.wiener import Wiener
from train.objective import interpolate, velocity_target

BATCH = 32


@dataclass(frozen=True)
class Loss:
    """Mean losses over crops at one sigma, and the standard error of their paired difference."""

    sigma: float
    model: float
    linear: dict[str, float]  # by basis
    difference: float  # model - best linear
    standard_error: float


def losses(
    model: FluxTransformer2DModel, pixels: Tensor, filters: dict[str, Wiener], sigmas: list[float], *, seed: int
) -> list[Loss]:
    """``model`` and each filter on crops ``pixels`` (uint8 [N, S, S, 3]), one noise draw a crop and sigma."""
    family = Flux(model.config, channels=3)
    x0 = latent(pixels)
    rows = []
    for sigma in sigmas:
        noise = normal(x0.shape, seed=seed, purpose="mini evaluate", index=(f"{sigma:.6f}",))
        of_model = torch.cat(
            [_model_loss(model, family, *part, sigma) for part in zip(x0.split(BATCH), noise.split(BATCH), strict=True)]
        )
        of_filters = {name: _filter_loss(wiener, x0, noise, sigma) for name, wiener in filters.items()}
        best = min(of_filters.values(), key=lambda loss: float(loss.mean()))
        gap = of_model.double() - best
        rows.append(
            Loss(
                sigma,
                float(of_model.mean()),
                {name: float(loss.mean()) for name, loss in of_filters.items()},
                float(gap.mean()),
                float(gap.std() / len(gap) ** 0.5),
            )
        )
    return rows


@torch.no_grad()
def _model_loss(model: FluxTransformer2DModel, family: Flux, x0: Tensor, noise: Tensor, sigma: float) -> Tensor:
    return loss_of(model, family, x0, noise, torch.full((len(x0),), sigma))


def _filter_loss(wiener: Wiener, x0: Tensor, noise: Tensor, sigma: float) -> Tensor:
    level = torch.full((len(x0),), sigma)
    parts = zip(interpolate(x0, noise, level).split(BATCH), velocity_target(x0, noise).split(BATCH), strict=True)
    return torch.cat([(wiener.velocity(x, sigma) - v.double()).square().flatten(1).mean(1) for x, v in parts])
