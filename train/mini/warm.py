"""The mini model's warmed adapter: a rank-4 LoRA after its first steps on the shipped corpus.

A probe at a fresh adapter would see no gradient in ``down`` (up is zero), so the default is this one.
Its optimiser state is kept beside it, as safetensors.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from train import tensors_file
from train.adapter import Lora, attach, plain_name, save
from train.crn import generator
from train.families import unconditional
from train.families.flux import Flux
from train.model import Model
from train.objective import flow_matching
from train.step import step_loss


@dataclass(frozen=True)
class Warming:
    """Everything that decides the adapter, besides model and corpus.

    Few steps, so that the adapter is still on its way: at its optimum the mean gradient would vanish, and with it
    the length that every relative bias is measured by.
    """

    seed: int = 0
    rank: int = 4
    alpha: float = 4.0
    steps: int = 30
    batch: int = 8
    learning_rate: float = 3e-3


def warm(model: Model, corpus: Tensor, recipe: Warming) -> Iterator[int]:
    """Train a fresh adapter of ``model`` on clean latents [N, C, H, W]; yields steps done.

    The adapter stays attached, and its files are written at the end.
    """
    lora = Lora(recipe.rank, recipe.alpha, Flux.lora_targets)
    parameters = attach(model.transformer, lora, recipe.seed)
    optimizer = torch.optim.AdamW(parameters.values(), lr=recipe.learning_rate, weight_decay=0.0)
    for step in range(recipe.steps):
        loss = batch_loss(model, corpus, generator(recipe.seed, "mini warm", (step,)), recipe.batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield step + 1
    write(model.folder / "adapter", parameters, lora, optimizer)


def batch_loss(model: Model, corpus: Tensor, g: torch.Generator, batch: int) -> Tensor:
    """Mean loss of Eq. 3 over a batch whose images, stratified sigma and noise all come from ``g``."""
    x0 = corpus[torch.randint(len(corpus), (batch,), generator=g)]
    sigma = (torch.arange(batch) + torch.rand(batch, generator=g)) / batch
    noise = torch.randn(x0.shape, generator=g)
    step = flow_matching(x0, noise, sigma, unconditional(model.family, len(x0)))
    return step_loss(model.transformer, model.family, step).mean()


@torch.no_grad()
def corpus_loss(model: Model, corpus: Tensor, *, seed: int, batches: int = 12) -> float:
    """Mean loss over ``batches`` x 40 samples that no training step drew: the same ones at every call."""
    drawn = [generator(seed, "mini warm evaluate", (i,)) for i in range(batches)]
    return sum(batch_loss(model, corpus, g, 40).item() for g in drawn) / batches


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
    tensors_file.write(folder / "optimizer.safetensors", state, {"optimizer": "torch.optim.AdamW", "step": str(step)})
