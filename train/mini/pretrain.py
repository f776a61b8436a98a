"""The mini model's weights from scratch: a small Flux transformer learns photographs, pixel by pixel.

Every draw of a step is derived from (seed, step) alone, so a run that stopped goes on to the same bits
(``train mini``; MODEL_CARD.md shows what came out of it and how long it took).
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from analysis.errors import UsageError
from train import tensors_file
from train.crn import generator
from train.families import unconditional
from train.families.flux import Flux
from train.objective import flow_matching
from train.step import step_loss

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


@dataclass
class Training:
    """The state of a run after ``step`` steps; ``averaged`` is the weight average that ships."""

    model: FluxTransformer2DModel
    optimizer: torch.optim.AdamW
    averaged: dict[str, Tensor]
    step: int = 0


def begin(recipe: Recipe) -> Training:
    """The state before the first step."""
    model = new_model(recipe.seed)
    averaged = {name: weight.detach().clone() for name, weight in model.state_dict().items()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, betas=recipe.betas, weight_decay=recipe.weight_decay)
    return Training(model, optimizer, averaged)


def advance(training: Training, pixels: dict[int, Tensor], recipe: Recipe) -> float:
    """One step; returns its loss. pixels: uint8 [N, T, T, 3] by tier."""
    model, step = training.model, training.step
    training.optimizer.param_groups[0]["lr"] = rate_of(step, recipe)
    family = Flux(model.config, channels=3)
    x0, noise, sigma = batch_of(pixels, step, recipe)
    loss = step_loss(model, family, flow_matching(x0, noise, sigma, unconditional(family, len(x0)))).mean()
    training.optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
    training.optimizer.step()
    decay = min(recipe.average, (step + 1) / (step + 10))
    for name, weight in model.state_dict().items():
        training.averaged[name].lerp_(weight, 1 - decay)
    training.step += 1
    return loss.item()


def save(path: Path, training: Training, recipe: Recipe) -> None:
    """Everything that ``restore`` needs, atomically."""
    named = dict(training.model.named_parameters())
    tensors = {f"weight.{name}": weight for name, weight in training.model.state_dict().items()}
    tensors |= {f"averaged.{name}": weight for name, weight in training.averaged.items()}
    for moment in ("exp_avg", "exp_avg_sq", "step"):
        tensors |= {f"{moment}.{name}": training.optimizer.state[p][moment] for name, p in named.items()}
    tensors_file.write(path, tensors, {"step": str(training.step), "recipe": json.dumps(asdict(recipe))})


def restore(path: Path, recipe: Recipe) -> Training:
    """The state that ``save`` wrote. UsageError if it was written under another recipe."""
    with safe_open(path, framework="pt") as file:
        about = file.metadata()
    if json.loads(about["recipe"]) != json.loads(json.dumps(asdict(recipe))):
        raise UsageError(f"{path}: of another recipe, {about['recipe']}; use that one, or another folder")
    tensors = load_file(path)
    training = begin(recipe)
    training.step = int(about["step"])
    training.model.load_state_dict({name: tensors[f"weight.{name}"] for name in training.averaged})
    training.averaged = {name: tensors[f"averaged.{name}"] for name in training.averaged}
    for name, p in training.model.named_parameters():
        training.optimizer.state[p] = {m: tensors[f"{m}.{name}"] for m in ("step", "exp_avg", "exp_avg_sq")}
    return training
