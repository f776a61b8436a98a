"""The two published tables, as they were made: means over images of figures that each image has alone.

These are not estimates of docs/method.md, section 5. A mean of per-image cosines is not the cosine of the mean
gradients: images with weak gradients weigh as much as strong ones, and their cosines are hardly determined (Eq. 12).
"""

import numpy as np
import xarray as xr

from analysis.errors import UsageError

CONTROL = "reenc"
LARGEST = 1.5
"""Excess gaps beyond this size were dropped: a debiased gap divides by a product that may be next to zero."""


def gap(dataset: xr.Dataset, control: str = CONTROL) -> xr.Dataset:
    """Mean over images of (debiased gap - the control arm's): ``gap`` and ``images`` [sigma, arm].

    Differences that are not finite or beyond ``LARGEST`` are dropped; ``images`` counts the others. UsageError without
    the control arm.
    """
    arms = dataset["arm"].values.tolist()
    if control not in arms:
        raise UsageError(f"control arm {control!r} is not among the arms {', '.join(arms)} of these records")
    excess = dataset["debiased_gap"] - dataset["debiased_gap"].sel(arm=control, drop=True)
    excess = excess.drop_sel(arm=control)
    return _averaged(excess.where(np.abs(excess) <= LARGEST), "gap")


def norm_ratio(dataset: xr.Dataset) -> xr.Dataset:
    """Geometric mean over images of |g| / |g_native| sqrt(cos_self / cos_floor): ``norm_ratio``, ``images``.

    [sigma, arm], for arms whose norms were published. The root takes the noise off either norm; where one of its
    cosines is not positive the image is dropped.
    """
    measured = dataset["gradient_norm"].notnull().any(("sigma", "image")).values
    chosen = dataset.isel(arm=np.flatnonzero(measured))
    own, floor = chosen["cos_self"], chosen["cos_floor"]
    positive = (own > 0.0) & (floor > 0.0)
    squared = chosen["gradient_norm"] ** 2 * own / (chosen["gradient_norm_native"] ** 2 * floor)
    found = _averaged(0.5 * xr.apply_ufunc(np.log, squared.where(positive)), "norm_ratio")
    return found.assign(norm_ratio=np.exp(found["norm_ratio"]))


def _averaged(per_image: xr.DataArray, name: str) -> xr.Dataset:
    """Mean over the images that have a figure, and how many they are."""
    counted = per_image.notnull().sum("image")
    mean = per_image.fillna(0.0).sum("image") / counted.where(counted > 0)
    return xr.Dataset({name: mean, "images": counted}).transpose("sigma", "arm")
