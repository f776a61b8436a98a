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
# # From Gram matrices to a sigma-safety curve
#
# A probe store holds inner products of gradients and nothing else. This notebook opens one with plain xarray and walks
# to the curve of `analysis safety` with nothing but numpy and Student's t, one formula at a time. At the end it
# compares its own numbers with the program's.
#
# `SIGMA_PROBES_STORE` names the store; without it, the one that `make demo` writes.

# %%
import os
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from scipy import stats

path = os.environ.get("SIGMA_PROBES_STORE", "demo/probe.zarr")
data = xr.open_zarr(path, consolidated=False).load()
print(data)

# %% [markdown]
# ## The Gram matrix of one cell
#
# At each sigma and block, `gram_image[arm, image, arm_2, image_2]` is the inner product of two mean gradients (Eq. 4):
# of an image under one arm, and of an image under another, each a mean over noise draws. Blocks share no parameters, so
# the inner products of the whole adapter are sums over blocks. Sums come first, ratios last.

# %%
metric = str(data["metric"].values[0])
margin = 0.2
done = data["done"].values
assert done.any(), "no cell of this store is done"

gram = data["gram_image"].sel(metric=metric).isel(sigma=done).sum("block")
images_used = data["images_used"].values[done]
sigmas = gram["sigma"].values
treated = [str(arm) for arm in data["arm"].values if arm != "native"]
print(dict(gram.sizes), "treated arms:", treated)

# %% [markdown]
# ## Four matrices of images
#
# With native gradients $g_i$ and treated ones $h_i$ of the same images and the same noise, their difference is
# $\delta_i = h_i - g_i$, and its inner products follow from those stored.


# %%
def pairs(arm: str, index: int) -> dict[str, np.ndarray]:
    """Image x image inner products at one sigma: native, native with treated, treated, difference."""
    n = int(images_used[index])
    cell = gram.isel(sigma=index, image=slice(n), image_2=slice(n))
    native = cell.sel(arm="native", arm_2="native").values
    crossed = cell.sel(arm="native", arm_2=arm).values
    crossed = 0.5 * (crossed + crossed.T)
    own = cell.sel(arm=arm, arm_2=arm).values
    return {"native": native, "crossed": crossed, "treated": own, "difference": own - 2 * crossed + native}


# %% [markdown]
# ## Means without noise
#
# $|\bar\delta|^2$ is too large: it holds the noise of every image. But the noise of different images is independent, so
# the mean over pairs $i \neq j$ is an unbiased estimate of the squared mean (Eq. 7). It may come out below zero, and
# then it stays there: that is what no bias looks like.


# %%
def squared_mean(matrix: np.ndarray) -> float:
    """U-statistic: the mean over pairs of different images."""
    n = len(matrix)
    return (matrix.sum() - np.trace(matrix)) / (n * (n - 1))


def without(matrix: np.ndarray, image: int) -> np.ndarray:
    kept = np.arange(len(matrix)) != image
    return matrix[np.ix_(kept, kept)]


def replicates(matrix: np.ndarray) -> np.ndarray:
    """The U-statistic with each image left out in turn."""
    return np.array([squared_mean(without(matrix, image)) for image in range(len(matrix))])


def jackknife_variance(left_out: np.ndarray) -> float:
    n = len(left_out)
    return (n - 1) / n * np.sum((left_out - left_out.mean()) ** 2)


curve = {
    arm: np.array(
        [squared_mean(p["difference"]) / squared_mean(p["native"]) for p in (pairs(arm, k) for k in range(len(sigmas)))]
    )
    for arm in treated
}
for arm, squares in curve.items():
    print(f"{arm:<16} rho^2 =", np.round(squares, 3))

# %% [markdown]
# ## Is the bias below a margin?
#
# $\rho^2 \le \theta$ is the same as $T(\theta) = |bias|^2 - \theta\,|\mu_0|^2 \le 0$, a plain difference, whose spread
# the jackknife gives. One thing needs care: where chance makes the bias look small, it makes its spread look small too.
# So the spread is taken as it would be at the margin. A square's variance grows by $4 \lambda / n$ for each unit of the
# square, with $\lambda = \max(\mathrm{tr}\,\Sigma^2 / \mathrm{tr}\,\Sigma,\ \tfrac12\,\mathrm{tr}\,\Sigma^3 /
# \mathrm{tr}\,\Sigma^2)$ of the gradients' covariance over images.


# %%
def growth(matrix: np.ndarray) -> float:
    """4 lambda / n, from powers of the centred Gram matrix' eigenvalues, their sums unbiased as of a Wishart matrix."""
    n = len(matrix)
    centred = matrix - matrix.mean(0) - matrix.mean(1)[:, None] + matrix.mean()
    free = n - 1
    first, second, third = (np.sum(np.linalg.eigvalsh(centred / free) ** power) for power in (1, 2, 3))
    square = free**2 / ((free - 1) * (free + 2)) * (second - first**2 / free)
    cube = 0.0
    if free > 2:  # three images do not tell it
        cube = third - 3 * second * first / free + 2 * first**3 / free**2
        cube *= free**4 / ((free - 1) * (free - 2) * (free + 2) * (free + 4))
    if first <= 0 or square <= 0:
        return 0.0
    return float(4 / n * max(square / first, 0.5 * cube / square))


def figures(arm: str, index: int) -> dict[str, Any]:
    """All that the test needs of one cell: both squared means, their replicates, and how their variances grow."""
    p = pairs(arm, index)
    bias, native = p["difference"], p["native"]
    return {
        "images": len(native),
        "bias": squared_mean(bias),
        "native": squared_mean(native),
        "bias_replicates": replicates(bias),
        "native_replicates": replicates(native),
        "bias_growth": growth(bias),
        "native_growth": growth(native),
    }


def test(cell: dict[str, Any], theta: float) -> str:
    """Safe, harmful or unresolved at rho^2 = theta, each at one-sided 2.5 %."""
    quantile = stats.t.ppf(0.975, cell["images"] - 1)
    if cell["native"] <= quantile * np.sqrt(jackknife_variance(cell["native_replicates"])):
        return "unresolved"  # the native gradient itself is not told from zero
    contrast = cell["bias"] - theta * cell["native"]
    variance = jackknife_variance(cell["bias_replicates"] - theta * cell["native_replicates"])
    variance_safe = variance + cell["bias_growth"] * max(-contrast, 0.0)
    variance_harmful = variance + max(theta, 0.0) * cell["native_growth"] * max(contrast, 0.0)
    if contrast + quantile * np.sqrt(variance_safe) < 0:
        return "safe"
    if contrast - quantile * np.sqrt(variance_harmful) > 0:
        return "harmful"
    return "unresolved"


cells = {arm: [figures(arm, index) for index in range(len(sigmas))] for arm in treated}
verdicts = {arm: [test(cell, margin**2) for cell in cells[arm]] for arm in treated}
for arm, answers in verdicts.items():
    print(f"{arm:<16}", dict(zip(np.round(sigmas, 3).tolist(), answers, strict=True)))

# %% [markdown]
# ## An interval is the set of margins that no test rules out
#
# Turn the question round: for which $\theta$ is the answer neither safe nor harmful? That set is Fieller's interval.
# Bisection finds its ends.


# %%
def flips(cell: dict[str, Any], answer: str, inside: float, outside: float) -> float:
    """The theta between ``inside`` (unresolved) and ``outside`` (``answer``) where the test changes its mind."""
    for _ in range(60):
        middle = 0.5 * (inside + outside)
        if test(cell, middle) == answer:
            outside = middle
        else:
            inside = middle
    return 0.5 * (inside + outside)


def interval(cell: dict[str, Any]) -> tuple[float, float]:
    """Two-sided 95 % interval of rho^2; NaN where the native gradient is not told from zero, or no end is found."""
    estimate = cell["bias"] / cell["native"]
    far = 1e3 * (abs(estimate) + 1.0)
    if test(cell, estimate + far) != "safe" or test(cell, estimate - far) != "harmful":
        return np.nan, np.nan
    return flips(cell, "harmful", estimate, estimate - far), flips(cell, "safe", estimate, estimate + far)


intervals = {arm: np.array([interval(cell) for cell in cells[arm]]) for arm in treated}

# %% [markdown]
# ## The same from the program

# %%
from pathlib import Path  # noqa: E402

from analysis import store  # noqa: E402
from analysis.safety import assess  # noqa: E402

assessed = assess(store.open_store(Path(path)), margin=margin).sel(metric=metric, block="total")
for arm in treated:
    theirs = assessed.sel(arm=arm)
    resolved = np.isfinite(theirs["lower"].values)
    np.testing.assert_allclose(
        curve[arm][resolved], theirs["relative_bias_squared"].values[resolved], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(intervals[arm][resolved, 0], theirs["lower"].values[resolved], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(intervals[arm][resolved, 1], theirs["upper"].values[resolved], rtol=1e-6, atol=1e-9)
    assert np.isnan(intervals[arm][~resolved]).all()
    assert verdicts[arm] == theirs["verdict"].values.tolist()
print("equal:", ", ".join(treated))

# %% [markdown]
# ## The curve
#
# `analysis.plots.safety_figure` draws the same with everything on it.


# %%
def signed_root(square: np.ndarray) -> np.ndarray:
    return np.sign(square) * np.sqrt(np.abs(square))


figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
for arm in treated:
    ends = signed_root(intervals[arm])
    middle = signed_root(curve[arm])
    line = axes.plot(sigmas, middle, marker="o", markersize=4, linewidth=0.8, label=arm)[0]
    axes.vlines(sigmas, ends[:, 0], ends[:, 1], color=line.get_color())
axes.axhline(margin, color="black", linestyle="--", linewidth=0.9, label="margin")
axes.axhline(0, color="black", linewidth=0.5)
axes.set_xlabel(r"noise level $\sigma$")
axes.set_ylabel(r"relative bias $\rho$")
axes.legend(frameon=False)
plt.show()
