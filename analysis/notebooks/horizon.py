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
# # How far the ruler reaches
#
# Runs of one start take the same images, noise and sigma, and differ in the *dose* of a treatment: its gradient is
# mixed into the native one. While their separation is proportional to the dose, an end point is a ruler. Training is
# chaotic, and AdamW is not linear, so sooner or later it only tells that something differs. This notebook finds where,
# from the inner products in a store of `probes horizon`, with nothing but numpy, and compares with what the program
# says. The formulas are in docs/method.md, section 11.
#
# `SIGMA_PROBES_HORIZON_STORE` names the store. One is made by `probes horizon --out demo/horizon.zarr`.

# %%
import os
from itertools import pairwise
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from IPython.display import display

path = os.environ.get("SIGMA_PROBES_HORIZON_STORE", "demo/horizon.zarr")
data = xr.open_zarr(path, consolidated=False).load()
# Blocks share no parameters, so inner products of the whole adapter are sums over blocks.
gram = data["gram"].sum("block")
arms, steps, dose = data["arm"].values.tolist(), data["step"].values, data["dose"].values
doses = [arm for arm, size in zip(arms, dose, strict=True) if size > 0]
jitters = [arm for arm, size in zip(arms, dose, strict=True) if np.isnan(size)]
print(dict(gram.sizes), doses)

# %% [markdown]
# ## Separation
#
# The first row of a Gram matrix is the baseline's displacement from the start, $D_k$; every other one is a run's
# displacement from the baseline, $d_k$. So a length is a root on the diagonal (Eq. 13). Means over seeds are geometric,
# of the seeds that were treated by then.


# %%
def squared(arm: str) -> xr.DataArray:
    """|d_k|^2 [seed, step] of a run; of the baseline |D_k|^2."""
    return gram.sel(arm=arm, arm_2=arm)


def over_seeds(values: xr.DataArray) -> xr.DataArray:
    """Geometric mean, [step]."""
    logs = xr.DataArray(np.log(values.where(values > 0)))
    return xr.DataArray(np.exp(logs.mean("seed")))


separation = {arm: (squared(arm) / squared(arms[0])) ** 0.5 for arm in arms[1:]}
for arm in doses:
    print(f"dose {arm:>4}:", " ".join(f"{value:.4f}" for value in over_seeds(separation[arm]).values))

# %% [markdown]
# ## Is it proportional to the dose?
#
# If it is, the full dose has moved twice as far as half of it, in the same direction. What is left of the difference,
# over the full dose's length, is the non-linearity (Eq. 14). The ruler holds while it is below 0.1. Rounding to float32
# makes some of it by itself (Eq. 14a): where that may be half of 0.1, nothing is said.


# %%
def nonlinearity(whole: str, half: str) -> xr.DataArray:
    """NL [seed, step]."""
    cross = gram.sel(arm=whole, arm_2=half)
    left = squared(whole) - 4 * cross + 4 * squared(half)
    by_rounding = 3 * data["step"] * data["rounding"].sum("block")
    return ((left.clip(min=0) / squared(whole)) ** 0.5).where(by_rounding <= 0.05**2 * squared(whole)).clip(min=1e-8)


bent = {whole: nonlinearity(whole, half) for half, whole in pairwise(doses)}
by_hand = {}
for whole, values in bent.items():
    mean = over_seeds(values).values
    beyond = np.flatnonzero(mean >= 0.1)
    known = [k for k, value in zip(steps, mean, strict=True) if np.isfinite(value)]
    by_hand[whole] = max([k for k in known if not beyond.size or k < steps[beyond[0]]], default=0)
    print(f"dose {whole:>4}:", " ".join(f"{value:.4f}" for value in mean), f"  horizon {by_hand[whole]}")

# %% [markdown]
# ## How fast any difference grows
#
# Jitters began a hundred-thousandth away from the baseline, or whatever `--jitter-size` was. Where the lines of the
# doses and those of the jitters meet, a treatment cannot be told from next to nothing.

# %%
figure, axes = plt.subplots(figsize=(5.6, 3.6), layout="constrained")
for place, arm in enumerate(doses):
    shade = plt.colormaps["viridis_r"](0.15 + 0.75 * place / max(1, len(doses) - 1))
    axes.plot(steps, over_seeds(separation[arm]), marker="o", markersize=3, color=shade, label=f"dose {arm}")
for arm in jitters:
    axes.plot(steps, over_seeds(separation[arm]), color="grey", linewidth=0.6)
floor = (data["rounding"].sum("block") / squared(arms[0])) ** 0.5
axes.plot(steps, over_seeds(floor), color="grey", linestyle=":", label="floor of float32")
full = doses[-1]
if by_hand[full]:
    axes.axvspan(steps[0], by_hand[full], color="#009E73", alpha=0.13, linewidth=0)
axes.set(xscale="log", yscale="log", xlabel="optimiser steps", ylabel="separation over the baseline's displacement")
axes.legend(frameon=False, fontsize=7)
display(figure)
plt.close(figure)

# %% [markdown]
# ## Block by block
#
# The ruler need not bend everywhere at once.

# %%
by_block = data["gram"].sel(arm=full, arm_2=full)
half = doses[-2]
left = by_block - 4 * data["gram"].sel(arm=full, arm_2=half) + 4 * data["gram"].sel(arm=half, arm_2=half)
of_block = over_seeds((left.clip(min=0) / by_block.where(by_block > 0)) ** 0.5)
print(of_block.transpose("block", "step").to_pandas().round(3).to_string())

# %% [markdown]
# ## The program agrees

# %%
from analysis.horizon import store  # noqa: E402
from analysis.horizon.answer import assess  # noqa: E402
from analysis.horizon.report import as_text  # noqa: E402

answer = assess(store.read(Path(path)))
for arm in bent:
    assert answer.reaches["total"][arm].horizon.step == by_hand[arm], arm
    assert np.allclose(answer.figures["separation"].sel(block="total", arm=arm), separation[arm])
print("equal by hand and by program:", ", ".join(bent))
print(as_text(answer))
