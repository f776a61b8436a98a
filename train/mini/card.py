"""MODEL_CARD.md of the mini model, written from what was measured."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from train.mini.evaluate import Loss
from train.mini.photographs import photographs
from train.mini.pretrain import TIERS, Recipe
from train.mini.warm import Warming

HEAD = """# The mini model

A Flux-shaped transformer of {parameters:,} parameters on pixels (patches of 4 x 4, tiers of {tiers}
pixels, values scaled to [-2, 2]), pretrained on {training} photographs, with a rank-{rank} LoRA warmed
on the shipped corpus of {crops} crops of {corpus} other photographs. It is small enough to probe on two CPU
cores, and it has learned pictures: below, what it samples after {snapshots} training steps
(rows, same noise), and how its loss compares with the best linear predictor.

![samples](samples.png)

This file, `samples.png` and `losses.csv` are written by `train mini`.

## Held-out loss

Mean squared error of the velocity on {held_out} crops of the {corpus} photographs it never saw, one noise draw
each, at 64 pixels, of the weights as shipped (float16). *Linear*: the per-frequency Wiener filter with
colours filtered jointly, fitted on {fitted:,} training crops in the cosine or the Fourier basis, whichever
is better at that sigma. The difference is paired, with its standard error over crops.

| sigma | model | linear | model - linear | after {snapshots} steps |
|---|---|---|---|---|
"""

REST = """
## How it was made

`train mini --unpacked DIR --out OUT` makes all of it from scratch: {steps} steps, batch {batch}, AdamW at
{learning_rate:g} (betas {betas}, weight decay {weight_decay:g}), linear warm-up over {warmup} steps and linear
to zero, gradients clipped at norm {clip:g}, weights averaged with decay {average:g}; half of the steps at 64
pixels, a quarter each at 56 and 48; sigma stratified uniform over (0, 1); {crop_count:,} crops; seed {seed}.
Training loss, mean over the 200 steps before: {training_loss}.
{seconds}
The adapter: rank {rank}, {warm_steps} steps, batch {warm_batch}, AdamW at {warm_rate:g}, seed {warm_seed}; with it
the loss on the corpus goes from {warm_before:.4f} to {warm_after:.4f} (the same 480 samples, sigma stratified over
(0, 1)). It stops early on purpose: a converged adapter has no mean gradient left to compare arms by.

The Debian packages are only read. Unpacked anywhere, they are `DIR`:

    apt-get download {packages}
    for package in *.deb; do dpkg -x "$package" DIR; done

and `pip install 'sigma-probes[mini]'` brings the others.

## Photographs

| photograph | used for | package | author | licence |
|---|---|---|---|---|
"""


def written(
    folder: Path,
    *,
    recipe: Recipe,
    warming: Warming,
    facts: Mapping[str, object],
    final: Sequence[Loss],
    earlier: Mapping[int, Sequence[Loss]],
) -> None:
    """Write ``MODEL_CARD.md`` and ``losses.csv`` into ``folder``. earlier: losses at snapshots, by steps."""
    snapshots = ", ".join(map(str, earlier))
    training, corpus = photographs("train"), photographs("corpus")
    packages = sorted({p.package for p in training} - {"scikit-image", "scikit-learn"})
    said = {
        **asdict(recipe),
        **facts,
        "tiers": ", ".join(map(str, TIERS)),
        "training": len(training),
        "corpus": len(corpus),
        "rank": warming.rank,
        "warm_steps": warming.steps,
        "warm_batch": warming.batch,
        "warm_rate": warming.learning_rate,
        "warm_seed": warming.seed,
        "snapshots": snapshots,
        "packages": " ".join(packages),
    }
    lines = []
    for i, loss in enumerate(final):
        past = " / ".join(f"{losses[i].model:.4f}" for losses in earlier.values())
        gap = f"{loss.difference:+.4f} ± {loss.standard_error:.4f}"
        lines.append(f"| {loss.sigma:g} | {loss.model:.4f} | {min(loss.linear.values()):.4f} | {gap} | {past} |")
    pictures = [f"| {p.name} | {p.split} | {p.package} | {p.author} | {p.licence} |" for p in (*training, *corpus)]
    text = HEAD.format(**said) + "\n".join(lines) + "\n" + REST.format(**said) + "\n".join(pictures) + "\n"
    (folder / "MODEL_CARD.md").write_text(text, encoding="utf-8")
    with (folder / "losses.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["sigma", "model", *final[0].linear, "difference", "standard_error", *earlier])
        for i, loss in enumerate(final):
            past = [losses[i].model for losses in earlier.values()]
            table.writerow([loss.sigma, loss.model, *loss.linear.values(), loss.difference, loss.standard_error, *past])
