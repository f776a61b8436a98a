"""The mini model's weights from scratch: a small Flux transformer learns photographs, pixel by pixel.

One loop, seeds derived anew at each step, so a run that stopped goes on to the same bits
(``train mini --out DIR``; MODEL_CARD.md shows what came out of it and how long it took).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor

from train.crn import generator
from train.families.flux import Flux
from train.objective import StepInput, interpolate, squared_error, velocity_target

TIERS = (64, 56, 48)  # pixels
HEAD_DIM, HEADS = 32, 4
TRANSFORMER = {
    "patch_size": 1,
    "in_channels": 48,  # 3 colours x 4 x 4 pixels a token
    "num_layers": 1,
    "num_single_layers": 5,
    "attention_head_dim": HEAD_DIM,
    "num_attention_heads": HEADS,
    "joint_attention_dim": 16,
    "pooled_projection_dim": 16,
    "axes_dims_rope": [8, 12, 12],
}


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the weights, besides the crops."""

    seed: int = 0
    steps: int = 5000
    batch: int = 16
    learning_rate: float = 1.5e-3
    warmup: int = 200  # steps
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    clip: float = 1.0  # gradient norm
    average: float = 0.998  # decay of the weight average, after the warm-up


def tier_of(step: int) -> int:
    """Half of the steps at 64 pixels, a quarter each at 56 and 48."""
    return (64, 56, 64, 48)[step % 4]


def rate_of(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then linear to zero."""
    return recipe.learning_rate * min(1.0, (step + 1) / recipe.warmup) * (1 - step / recipe.steps)


def batch_of(pixels: dict[int, Tensor], step: int, recipe: Recipe) -> tuple[Tensor, Tensor, Tensor]:
    """Clean latents [B, 3, T, T], noise of that shape, and sigma [B], stratified uniform over (0, 1)."""
    g = generator(recipe.seed, "mini pretrain", (step,))
    crops = pixels[tier_of(step)]
    x0 = latent(crops[torch.randint(len(crops), (recipe.batch,), generator=g)])
    sigma = (torch.arange(recipe.batch) + torch.rand(recipe.batch, generator=g)) / recipe.batch
    return x0, torch.randn(x0.shape, generator=g), sigma


def latent(pixels: Tensor) -> Tensor:
    """uint8 pixels [..., H, W, 3] as float32 latents [..., 3, H, W] in [-2, 2]."""
    return (pixels.movedim(-1, -3).float() / 127.5 - 1) * 2


def new_model(seed: int) -> FluxTransformer2DModel:
    """The transformer with initial weights that depend on ``seed`` alone."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return FluxTransformer2DModel(**TRANSFORMER)


def loss_of(model: FluxTransformer2DModel, family: Flux, x0: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """Per-sample loss [B] of Eq. 3."""
    step = StepInput(interpolate(x0, noise, sigma), sigma, velocity_target(x0, noise), family.unconditional(len(x0)))
    answer = family.velocity(model(**family.arguments(step)), *x0.shape[-2:])
    return squared_error(answer, step.target)


def pretrain(pixels: dict[int, Tensor], recipe: Recipe) -> Iterator[tuple[int, float, float, dict[str, Tensor]]]:
    """Yields (steps done, loss, seconds, averaged weights) after every step. pixels: uint8 [N, T, T, 3] by tier."""
    model = new_model(recipe.seed)
    family = Flux(model.config, channels=3)
    averaged = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=recipe.betas, weight_decay=recipe.weight_decay)
    started = time.monotonic()
    for step in range(recipe.steps):
        optimizer.param_groups[0]["lr"] = rate_of(step, recipe)
        loss = loss_of(model, family, *batch_of(pixels, step, recipe)).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        decay = min(recipe.average, (step + 1) / (step + 10))
        for name, weight in model.state_dict().items():
            averaged[name].lerp_(weight, 1 - decay)
        yield step + 1, loss.item(), time.monotonic() - started, averaged
