"""``train mini``: the mini model from scratch, all of it, on one screen.

crops -> pretraining, with a checkpoint to resume from -> shipped weights -> corpus -> warmed adapter ->
losses, samples and the model card.
"""

import json
from pathlib import Path
from time import perf_counter

import torch
from diffusers import FluxTransformer2DModel
from safetensors.torch import load_file
from tqdm import tqdm

from analysis.atomic import replacing
from train import model as models
from train import tensors_file
from train.mini import card
from train.mini.corpus import cut
from train.mini.evaluate import Loss, linear_losses, losses
from train.mini.photographs import crops
from train.mini.pretrain import TIERS, Recipe, Training, advance, begin, latent, new_model, restore, save
from train.mini.sample import sampled, sheet
from train.mini.warm import Warming, corpus_loss, warm
from train.mini.wiener import BASES, fit, write

CROPS = 12_000  # for training
FITTED = 6_000  # of them, for the linear yardstick
HELD_OUT = 256  # crops of the corpus's photographs, for the losses
SNAPSHOTS = (250, 1000, 2500)  # steps whose losses and samples the card shows beside the last
EVERY = 500  # steps between checkpoints
SIGMAS = (*(round(0.3 + 0.05 * i, 2) for i in range(13)), 0.97)


def make(out: Path, unpacked: Path, recipe: Recipe, warming: Warming) -> None:
    """Make the model into ``out``; a run that was stopped goes on from its last checkpoint."""
    out.mkdir(parents=True, exist_ok=True)
    work = out / "work"
    work.mkdir(exist_ok=True)
    pixels = {
        t: torch.from_numpy(p) for t, p in crops("train", CROPS, TIERS, seed=recipe.seed, unpacked=unpacked).items()
    }
    history = pretrain(work, pixels, recipe)
    ship(out, unpacked, recipe)
    warmed = warm_adapter(out, warming)
    document(out, work, unpacked, pixels[TIERS[0]], recipe, warming, history, warmed)


def pretrain(work: Path, pixels: dict[int, torch.Tensor], recipe: Recipe) -> list[dict[str, float]]:
    """Train to the end, from the last checkpoint if there is one; returns loss and seconds of every step."""
    state, log = work / "state.safetensors", work / "history.jsonl"
    training = restore(state, recipe) if state.exists() else begin(recipe)
    history = [json.loads(line) for line in log.read_text().splitlines()[: training.step]] if training.step else []
    for _ in tqdm(range(training.step, recipe.steps), initial=training.step, total=recipe.steps, unit="step"):
        started = perf_counter()
        loss = advance(training, pixels, recipe)
        history.append({"step": training.step, "loss": loss, "seconds": perf_counter() - started})
        if training.step in (*SNAPSHOTS, recipe.steps):
            keep(work, training)
        if training.step % EVERY == 0 or training.step == recipe.steps:
            with replacing(log) as partial:
                partial.write_text("".join(json.dumps(row) + "\n" for row in history))
            save(state, training, recipe)
    return history


def keep(work: Path, training: Training) -> None:
    """The averaged weights of this step."""
    tensors_file.write(work / f"averaged_{training.step}.safetensors", training.averaged, {})


def ship(out: Path, unpacked: Path, recipe: Recipe) -> None:
    """The transformer in float16, in diffusers' layout, what its pixels are, and the corpus."""
    model = new_model(recipe.seed)
    model.load_state_dict(load_file(out / "work" / f"averaged_{recipe.steps}.safetensors"))
    model.half().save_pretrained(out / "transformer")
    about = {"tier": TIERS[0], "channels": 3, "scale": 2.0}
    (out / models.PIXELS).write_text(json.dumps(about) + "\n", encoding="utf-8")
    cut(out / "corpus", seed=recipe.seed, unpacked=unpacked)


def warm_adapter(out: Path, warming: Warming) -> tuple[float, float]:
    """Warm the adapter on the corpus; returns the corpus's loss before and after."""
    loaded = models.load(str(out))
    latents = models.latents_of(loaded, None)
    corpus = torch.stack([latents.latent(name, latents.tier) for name in latents.names])
    before = corpus_loss(loaded, corpus, seed=warming.seed)
    for _ in tqdm(warm(loaded, corpus, warming), total=warming.steps, unit="step"):
        pass
    return before, corpus_loss(loaded, corpus, seed=warming.seed)


def document(
    out: Path,
    work: Path,
    unpacked: Path,
    training_pixels: torch.Tensor,
    recipe: Recipe,
    warming: Warming,
    history: list[dict[str, float]],
    warmed: tuple[float, float],
) -> None:
    """Losses against the linear yardstick, samples, and the card."""
    filters = {basis: fit(latent(training_pixels[:FITTED]), basis) for basis in BASES}
    write(filters["cosine"], out / "wiener.safetensors")
    held_out = torch.from_numpy(crops("corpus", HELD_OUT, TIERS[:1], seed=recipe.seed + 1, unpacked=unpacked)[TIERS[0]])
    linear = linear_losses(filters, held_out, SIGMAS, seed=recipe.seed)
    shipped = FluxTransformer2DModel.from_pretrained(out / "transformer").eval()
    found: dict[int, list[Loss]] = {}
    rows = []
    for steps in (*SNAPSHOTS, recipe.steps):
        model = new_model(recipe.seed)
        model.load_state_dict(load_file(work / f"averaged_{steps}.safetensors"))
        found[steps] = losses(model.eval(), held_out, linear, seed=recipe.seed)
        rows.append(sampled(model, 10, TIERS[0], seed=recipe.seed))
    sheet(rows).save(out / "samples.png", optimize=True)
    marks = [step for step in (*SNAPSHOTS, recipe.steps) if step >= 200]
    facts = {
        "parameters": sum(p.numel() for p in shipped.parameters()),
        "crops": len(list((out / "corpus").glob("*.png"))),
        "crop_count": CROPS,
        "fitted": FITTED,
        "held_out": HELD_OUT,
        "training_loss": ", ".join(f"{mean(history, step):.4f} at {step}" for step in marks),
        "seconds": f"It took {sum(row['seconds'] for row in history) / 3600:.1f} hours on one CPU core.",
        "warm_before": warmed[0],
        "warm_after": warmed[1],
    }
    final = losses(shipped, held_out, linear, seed=recipe.seed)
    card.written(out, recipe=recipe, warming=warming, facts=facts, final=final, earlier=found)


def mean(history: list[dict[str, float]], step: int) -> float:
    """Mean training loss over the 200 steps up to ``step``."""
    return sum(row["loss"] for row in history[step - 200 : step]) / 200
