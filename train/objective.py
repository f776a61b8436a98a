"""The flow-matching objective: Eq. 1 to 3 of docs/method.md.

The noise and sigma are arguments, nothing here is random, and the loss is per sample, so that the
trainer and the probe differentiate the very same function.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from train.rope import NATIVE, Rope


@dataclass(frozen=True)
class StepInput:
    """What a model is given in one step, and what it should answer, for a batch of B samples.

    x_sigma: noisy latent [B, C, H, W] (video: [B, C, F, H, W]); sigma: noise level [B], in (0, 1];
    target: velocity, the shape of x_sigma; condition: tensors with B first, by the family's names;
    rope: how positions are stretched.
    """

    x_sigma: Tensor
    sigma: Tensor
    target: Tensor
    condition: Mapping[str, Tensor] = field(default_factory=dict)
    rope: Rope = NATIVE

    def to(self, device: str) -> "StepInput":
        """The same on another device."""
        condition = {name: value.to(device) for name, value in self.condition.items()}
        return StepInput(self.x_sigma.to(device), self.sigma.to(device), self.target.to(device), condition, self.rope)

    def fed_as(self, dtype: torch.dtype) -> "StepInput":
        """The same with latent and conditioning in the dtype of a model's weights; sigma and target stay float32."""
        condition = {name: v.to(dtype) if v.is_floating_point() else v for name, v in self.condition.items()}
        return StepInput(self.x_sigma.to(dtype), self.sigma, self.target, condition, self.rope)


def flow_matching(
    x0: Tensor, noise: Tensor, sigma: Tensor, condition: Mapping[str, Tensor], rope: Rope = NATIVE
) -> StepInput:
    """The step of clean latents and noise [B, ...] at sigma [B]."""
    return StepInput(interpolate(x0, noise, sigma), sigma, velocity_target(x0, noise), condition, rope)


def interpolate(x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Eq. 1: x_sigma = (1 - sigma) x0 + sigma noise. x0, noise: [B, ...]; sigma: [B]."""
    level = sigma.reshape(-1, *[1] * (x0.ndim - 1))
    return (1 - level) * x0 + level * noise


def velocity_target(x0: Tensor, noise: Tensor) -> Tensor:
    """Eq. 2: v = noise - x0."""
    return noise - x0


def squared_error(velocity: Tensor, target: Tensor) -> Tensor:
    """Eq. 3: mean over a sample's elements of (velocity - target)^2, in float32: [B, ...] -> [B]."""
    return (velocity.float() - target.float()).square().flatten(1).mean(1)
