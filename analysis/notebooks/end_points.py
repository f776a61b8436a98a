# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # End points: how a run without any treatment passed for an effect, and what tells the two apart
#
# A published story. Arms that differ only in which steps are made at low resolution were trained under common random
# numbers, in lockstep for the first steps, and their final adapters compared by the cosine of their displacements
# $\Delta W$. The cosines fell in the order of the dose, with a sensible profile in depth; an arm with other positions
# had "a footprint of its own". Then the same command was run twice, with nothing changed: cosine 0.41. The
# *racing* backward pass of attention adds numbers in an order that no seed controls, and training amplifies it.
#
# This notebook reads the same story from runs of the shipped 2-million-parameter model, in which the race is emulated
# on a CPU: `train study examples/story/story.toml` makes them, each arm racing and again deterministic.
# `SIGMA_PROBES_STORY` names their folder; without it, `runs/story`. With `SIGMA_PROBES_FIGURES` the pictures are kept.

# %%
import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from IPython.display import display

from analysis.endpoints import pairs as end_points
from analysis.endpoints import plots, report
from analysis.endpoints.displacement import measured
from analysis.endpoints.sources import sources

folder = Path(os.environ.get("SIGMA_PROBES_STORY", "runs/story"))
figures = os.environ.get("SIGMA_PROBES_FIGURES")


def keep(figure: plt.Figure, name: str) -> None:
    """Show a picture, and write it down where that was asked for."""
    if figures:
        figure.savefig(Path(figures) / f"{name}.png", dpi=160)
    display(figure)


# %% [markdown]
# ## In lockstep for ten steps
#
# Twins consume the same images, noise and $\sigma$. For many steps their losses agree to the last digits that float32
# has, which proves nothing about where they end: the difference grows all the time.


# %%
def losses(run: str) -> np.ndarray:
    """Loss of every step, from the run's own record."""
    lines = (folder / run / "metrics.jsonl").read_text().splitlines()
    return np.array([json.loads(line)["loss"] for line in lines])


twins = [f"native-twin{i}" for i in (1, 2, 3)]
native = losses("racing/native")
apart = {name: np.abs(losses(f"racing/{name}") / native - 1) for name in (*twins, "s075", "s05", "always")}
lockstep = max(float(apart[name][:10].max()) for name in twins)
print(f"largest relative difference of a racing twin's loss in the first ten steps: {lockstep:.1e}")
print(f"median over the last tenth of the run: {np.median([apart[n][-len(native) // 10 :] for n in twins]):.1e}")

figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
steps = np.arange(1, native.size + 1)
for name, difference in apart.items():
    axes.plot(steps, np.maximum(difference, 1e-9), linewidth=0.8, label=name)
axes.set(xscale="log", yscale="log", xlabel="optimiser step", ylabel="relative difference of loss")
axes.legend(frameon=False, fontsize=7)
keep(figure, "story-lockstep")
plt.close(figure)

# %% [markdown]
# ## The end points, racing
#
# The cosine of two displacements is a ratio of inner products, which are taken in rank space and summed over modules
# before dividing (Eq. 15 of `docs/method.md`). Beside each stands the floor: what twins reach, and the least that one
# more untreated run is expected to reach.

# %%
racing, _ = measured(sources([folder / "racing"]))
deterministic, _ = measured(sources([folder / "deterministic"]))


def told(dataset: xr.Dataset) -> tuple[list[end_points.Pair], dict[str, str], dict[str, float]]:
    """Each run beside the native one, with what the table shows of it."""
    arms = dataset["arm"].values.tolist()
    treatments = dict(zip(arms, dataset["treatment"].values.tolist(), strict=True))
    doses = dict(zip(arms, dataset["dose"].values.tolist(), strict=True))
    return end_points.pairs(dataset), treatments, doses


found = {"racing": told(racing), "deterministic": told(deterministic)}
print(report.as_text(*found["racing"], blocks=False))

# %% [markdown]
# ## The same arms, deterministic
#
# Now the twins end equal to the byte, and every difference is the treatment's: what the floor hid is attributed. Its
# size is not: the cosines are about what they were.

# %%
print(report.as_text(*found["deterministic"], blocks=False))
differing = deterministic["differing_tensors"].isel(step=-1).sum("block").sel(arm="native")
for name in twins:
    print(f"native ~ {name}: {int(differing.sel(arm_2=name))} tensors differ")

# %% [markdown]
# ## Beside the published cosines
#
# The model here has 2 million parameters and trains for minutes, so the figures need not agree; what they teach should.

# %%
PUBLISHED = {  # the published record, as far as it says which arm a number is of
    "native-twin1": (0.413, 1.0),
    "s075": (0.395, None),
    "s05": (0.320, 0.305),
    "always": (0.184, None),
    "s05 ~ rope": (0.402, 0.396),
}


def cosine(dataset: xr.Dataset, a: str, b: str) -> float:
    """Of two runs at the last step, over all blocks."""
    gram = dataset["displacement"].isel(step=-1).sum("block")
    norms = gram.sel(arm=a, arm_2=a) * gram.sel(arm=b, arm_2=b)
    return float(gram.sel(arm=a, arm_2=b) / np.sqrt(norms))


print("| pair | racing here | published | deterministic here | published |\n|---|---|---|---|---|")
for name, (raced, fixed) in PUBLISHED.items():
    a, b = name.split(" ~ ") if "~" in name else ("native", name)
    here = [cosine(dataset, a, b) for dataset in (racing, deterministic)]
    shown = ["-" if value is None else f"{value:.3f}" for value in (raced, fixed)]
    print(f"| {a} ~ {b} | {here[0]:.3f} | {shown[0]} | {here[1]:.3f} | {shown[1]} |")

# %% [markdown]
# ## Depth profiles
#
# The floor has a profile of its own, which looks like an effect of a treatment.

# %%
for kind, (compared, _, _) in found.items():
    figure = plots.profile_figure(compared)
    keep(figure, f"story-profile-{kind}")
for kind, (compared, _, _) in found.items():
    keep(plots.growth_figure(compared), f"story-growth-{kind}")

# %% [markdown]
# ## Where an end point stops being a ruler
#
# The same arms over learning rates, racing (`examples/story/learning_rate.toml`). While twins stay together the cosines
# rank the doses: the end point is still a ruler. Past the edge of chaos the floor falls, and everything with it.

# %%
rates = folder.parent / "learning_rate"
names = ("native-twin1", "s05", "always")
of_rate = {float(place.name): measured(sources([place]))[0] for place in rates.iterdir() if place.is_dir()}
of_rate[json.loads((folder / "racing/native/run.json").read_text())["settings"]["learning_rate"]] = racing
by_rate = {rate: {name: cosine(of_rate[rate], "native", name) for name in names} for rate in sorted(of_rate)}

print("| learning rate | twins | s05 | always |\n|---|---|---|---|")
for rate, cosines in by_rate.items():
    print(f"| {rate:g} | " + " | ".join(f"{value:.4f}" for value in cosines.values()) + " |")

figure, axes = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
labels = {"native-twin1": "twins: the floor", "s05": "s05", "always": "always"}
for place, (name, label) in enumerate(labels.items()):
    heights = [cosines[name] for cosines in by_rate.values()]
    axes.plot(list(by_rate), heights, marker="o", markersize=4, label=label, **plots.line_of(place))
axes.set(xscale="log", xlabel="learning rate", ylabel=r"cosine of $\Delta W$ with native's")
axes.set_xticks(list(by_rate), [f"{rate:g}" for rate in by_rate])
axes.minorticks_off()
axes.legend(frameon=False, fontsize=7)
keep(figure, "story-learning-rate")
plt.close(figure)

# %% [markdown]
# ## The program agrees
#
# The verdicts again, by hand: Student's $t$ on Fisher's scale.

# %%
from scipy import stats  # noqa: E402

z = np.arctanh([cosine(racing, "native", name) for name in twins])
least = float(np.tanh(z.mean() - stats.t.ppf(0.975, 2) * z.std(ddof=1) * np.sqrt(1 + 1 / 3)))
by_program = {pair.b: pair for pair in found["racing"][0]}
for name in ("s075", "s05", "always", "rope"):
    by_hand = "separated" if cosine(racing, "native", name) < least else "at the floor"
    assert by_hand == by_program[name].total.verdict, name
print("equal verdicts by hand and by program: s075, s05, always, rope")
