"""The mini model's warmed adapter: a rank-4 LoRA after its first steps on the shipped corpus.

A probe at a fresh adapter would see no gradient in ``down`` (up is zero), so the default is this one.
Its optimiser state is kept beside it, as safetensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from analysis.atomic import replacing
from train.adapter import Lora, attach, plain_name, save
from train.crn import generator
from train.families.flux import Flux
from train.latents import Latents
from train.model import Model
from train.objective import flow_matching
from train.step import step_loss


@dataclass(frozen=True)
class Warming:
    """Everything that decides the adapter, besides model and corpus.

    The rate is high, so that the adapter is still on its way: at its optimum the mean gradient would vanish, and with
    it the length that every relative bias is measured by.
    """

    seed: int = 0
    rank: int = 4
    alpha: float = 4.0
    steps: int = 60
    batch: int = 8
    learning_rate: float = 1e-2


def warm(model: Model, latents: Latents, recipe: Warming) -> Iterator[tuple[int, float]]:
    """Train a fresh adapter of ``model``; yields (steps done, loss) and leaves the adapter attached."""
    lora = Lora(recipe.rank, recipe.alpha, Flux.lora_targets)
    parameters = attach(model.transformer, lora, recipe.seed)
    optimizer = torch.optim.AdamW(parameters.values(), lr=recipe.learning_rate, weight_decay=0.0)
    corpus = torch.stack([latents.latent(name, latents.tier) for name in latents.names])
    for step in range(recipe.steps):
        loss = batch_loss(model, corpus, step, recipe)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step + 1, loss.item()
    write(model.folder / "adapter", parameters, lora, optimizer)


def batch_loss(model: Model, corpus: Tensor, step: int, recipe: Warming) -> Tensor:
    """Mean loss of Eq. 3 over a batch whose images, noise and stratified sigma depend on (seed, step) alone."""
    g = generator(recipe.seed, "mini warm", (step,))
    x0 = corpus[torch.randint(len(corpus), (recipe.batch,), generator=g)]
    sigma = (torch.arange(recipe.batch) + torch.rand(recipe.batch, generator=g)) / recipe.batch
    noise = torch.randn(x0.shape, generator=g)
    step_input = flow_matching(x0, noise, sigma, model.family.unconditional(len(x0)))
    return step_loss(model.transformer, model.family, step_input).mean()


def write(folder: Path, parameters: dict[str, nn.Parameter], lora: Lora, optimizer: torch.optim.Optimizer) -> None:
    """``adapter.safetensors`` in diffusers' form and ``optimizer.safetensors`` with AdamW's two moments."""
    folder.mkdir(exist_ok=True)
    save(folder / "adapter.safetensors", parameters, lora)
    state = {
        f"{moment}.{plain_name(name)}": optimizer.state[p][moment]
        for name, p in parameters.items()
        for moment in ("exp_avg", "exp_avg_sq")
    }
    step = int(optimizer.state[next(iter(parameters.values()))]["step"])
    with replacing(folder / "optimizer.safetensors") as partial:
        save_file(state, partial, {"optimizer": "torch.optim.AdamW", "step": str(step)})
