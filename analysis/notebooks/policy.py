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
# # From products across sigma to the fastest safe policy
#
# A *policy* says which arm a training run takes at which sigma. The optimiser follows the mean of all gradients that it
# draws, so what matters is the bias of that mean. This notebook computes it from a store's `gram_policy` with nothing
# but numpy, shows why figures at single sigma cannot give it, and compares its numbers with those of
# `analysis policy`. The formulas are in docs/method.md, section 10.
#
# `SIGMA_PROBES_POLICY_STORE` names the store. One is made by
# `probes grad --sigma-grid 0.0625:0.9375:8 --policy --out demo/policy.zarr`.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

path = os.environ.get("SIGMA_PROBES_POLICY_STORE", "demo/policy.zarr")
data = xr.open_zarr(path, consolidated=False).load()
metric = str(data["metric"].values[0])
# Blocks share no parameters, so inner products of the whole adapter are sums over blocks.
gram = data["gram_policy"].sel(metric=metric).sum("block")
sigmas, arms = data["sigma"].values, data["arm"].values.tolist()
treated = [arm for arm in arms if arm != "native"]
print(dict(gram.sizes))

# %% [markdown]
# ## How often training draws what a sigma stands for
#
# A grid sigma stands for the range between the midpoints to its neighbours. Here sigma is drawn uniformly, so a range's
# share is its length. A window's share of a range goes to its arm, the rest of it is native (Eq. 30).

# %%
middles = (sigmas[:-1] + sigmas[1:]) / 2
edges = np.concatenate([[1.5 * sigmas[0] - 0.5 * sigmas[1]], middles, [1.5 * sigmas[-1] - 0.5 * sigmas[-2]]])
edges = np.round(np.clip(edges, 0, 1), 12)
print(f"the grid covers {100 * (edges[-1] - edges[0]):.1f} % of (0, 1]")


def weights(routes: list[tuple[str, float, float]]) -> np.ndarray:
    """w[sigma, arm] of a policy, a list of (arm, lo, hi)."""
    found = np.zeros((len(sigmas), len(arms)))
    found[:, arms.index("native")] = np.diff(edges)
    for arm, lo, hi in routes:
        share = np.maximum(np.minimum(edges[1:], hi) - np.maximum(edges[:-1], lo), 0)
        found[:, arms.index(arm)] += share
        found[:, arms.index("native")] -= share
    return found / found.sum()


# %% [markdown]
# ## The bias of the mean gradient
#
# The difference of two runs' mean gradients, over one fold f of images, is
# $\delta(f) = \sum (w - w_0)\, \bar g(\sigma, a, f)$. Its inner products are sums over the stored ones (Eq. 32). Folds
# are independent, so the mean over pairs of *different* folds is a squared length without noise.


# %%
def products(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Fold x fold inner products of two mixtures of gradients."""
    return np.einsum("sa,safubg,ub->fg", one, gram.values, other)


def squared_mean(matrix: np.ndarray) -> float:
    """The mean over pairs of different folds."""
    n = len(matrix)
    return (matrix.sum() - np.trace(matrix)) / (n * (n - 1))


native = weights([])
native_square = squared_mean(products(native, native))


def relative_bias_squared(routes: list[tuple[str, float, float]]) -> float:
    change = weights(routes) - native
    return squared_mean(products(change, change)) / native_square


# %% [markdown]
# ## Why not from one sigma at a time?
#
# At every sigma an arm has a bias of its own. Their lengths, averaged over sigma, bound the length of the mean bias
# from above, and can be far from it: biases of opposite direction cancel.


# %%
def at_one_sigma(arm: str, index: int) -> float:
    """|bias| at one sigma, over the length of the native run's mean gradient."""
    change = np.zeros_like(native)
    change[index, arms.index(arm)], change[index, arms.index("native")] = 1, -1
    return np.sqrt(max(squared_mean(products(change, change)), 0) / native_square)


for arm in treated:
    singles = np.array([at_one_sigma(arm, index) for index in range(len(sigmas))])
    mean = np.sqrt(max(relative_bias_squared([(arm, 0.0, 1.0)]), 0))
    print(f"{arm:<14} mean of lengths {native.sum(1) @ singles:.3f}   length of the mean {mean:.3f}")

# %% [markdown]
# ## Thresholds of each arm
#
# Above an edge the arm, below it native. The further down, the faster, and the more bias, unless it cancels.

# %%
cost = data["seconds"].transpose("sigma", "arm").values
curves = {}
for arm in treated:
    rows = [weights([(arm, edge, 1.0)]) for edge in edges[:-1]]
    faster = [float((native * cost).sum() / (w * cost).sum()) for w in rows]
    curves[arm] = np.array([faster, [relative_bias_squared([(arm, edge, 1.0)]) for edge in edges[:-1]]])
    print(arm, np.round(curves[arm], 3).tolist())

# %% [markdown]
# ## The same from the program

# %%
from pathlib import Path  # noqa: E402

from analysis import store  # noqa: E402
from analysis.policy.answer import Question  # noqa: E402
from analysis.policy.answering import answered  # noqa: E402

covers = edges[-1] - edges[0] >= 0.98
question = Question("uniform", "seconds", "images", "relative", 0.2 if covers else None, "native", 1)
answer = answered(store.open_store(Path(path)), question)
for arm in treated:
    names = [f"{arm}@{edge:.12g}" if edge > 0 else arm for edge in edges[:-1]]
    theirs = answer.total.sel(policy=names)
    np.testing.assert_allclose(curves[arm][0], theirs["speed_up"].values, rtol=1e-9)
    resolved = np.isfinite(theirs["relative_bias_squared"].values)
    np.testing.assert_allclose(
        curves[arm][1][resolved], theirs["relative_bias_squared"].values[resolved], rtol=1e-6, atol=1e-10
    )
print("equal:", ", ".join(treated))
print("fastest that is shown to be safe:", answer.picked)

# %% [markdown]
# ## The front
#
# Of all policies of one and two arms, those that no other beats. `analysis policy STORE --png front.png` draws it, and
# `--write policy.toml` writes the one that was picked, for `train --policy policy.toml`.

# %%
figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for arm, (faster, squares) in curves.items():
    axes.plot(faster, np.sign(squares) * np.sqrt(np.abs(squares)), marker="o", markersize=4, linewidth=0.8, label=arm)
front = answer.total.sel(policy=list(answer.front))
squares = front["relative_bias_squared"].values
axes.plot(front["speed_up"], np.sign(squares) * np.sqrt(np.abs(squares)), color="black", linewidth=0.9, label="front")
axes.axhline(0, color="black", linewidth=0.5)
axes.set_xlabel("expected speed-up")
axes.set_ylabel(r"relative bias $\rho$ of the mean gradient")
axes.legend(frameon=False)
plt.show()
