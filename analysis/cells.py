"""Cells of a store: one for each sigma or, with several checkpoints, for each (step, sigma), counted in that order."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.contract import STEP

if TYPE_CHECKING:
    import xarray as xr

CELL = (STEP, "sigma")
"""Dimensions that tell cells apart, the slowest first; most stores have the second alone."""


def place(sizes: Mapping[Any, int], index: int) -> dict[str, int]:
    """Where cell ``index`` of a store of these sizes is: ``{"sigma": 3}`` or ``{"step": 1, "sigma": 3}``."""
    step, sigma = divmod(index, sizes["sigma"])
    return {STEP: step, "sigma": sigma} if STEP in sizes else {"sigma": index}


def count(sizes: Mapping[Any, int]) -> int:
    """How many cells there are."""
    return sizes["sigma"] * sizes.get(STEP, 1)


def named(dataset: "xr.Dataset", index: int) -> str:
    """A cell in words: ``sigma 0.5``, or ``step 100, sigma 0.5``."""
    at = dataset[[name for name in CELL if name in dataset.dims]].isel(place(dataset.sizes, index))
    return ", ".join(f"{name} {at[name].item():g}" for name in CELL if name in at.coords)
