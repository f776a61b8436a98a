"""Where calibration says that a figure is not to be relied on (docs/method.md, section 6)."""

import numpy as np
import xarray as xr
from jaxtyping import Float

FEWEST = 0.5
"""Effective over actual number of images below which per-image squares count as heavy-tailed."""


def warnings(dataset: xr.Dataset, done: np.ndarray, arms: list[str], population: str, rule: str) -> list[str]:
    """One sentence per kind of trouble, for the done cells of a store."""
    out = []
    if population == "images":
        heavy = [f"{sigma:g}" for index, sigma in _done(dataset, done) if _is_heavy(dataset, index, arms)]
        if heavy:
            touched = " and the verdicts" if rule in ("budget", "gap") else ""
            out.append(
                f"a few images hold most of the squared gradient at sigma {', '.join(heavy)}: noise scale and samples "
                f"to notice{touched} are uncertain beyond their intervals there, and N* is more likely too small "
                "than too large; probe more images"
            )
    return out


def _done(dataset: xr.Dataset, done: np.ndarray) -> list[tuple[int, float]]:
    return [(int(index), float(dataset["sigma"].values[index])) for index in done]


def _is_heavy(dataset: xr.Dataset, index: int, arms: list[str]) -> bool:
    """Whether any arm's mean square gradient rests on fewer than half of the images, all blocks together."""
    cell = dataset["gram_draw"].isel(sigma=index).sum("block").values[:, : int(dataset["images_used"].values[index])]
    names = dataset["arm"].values.tolist()
    for arm in arms:
        place = names.index(arm)
        squares = np.diagonal(cell[:, :, place, :, place, :], axis1=-2, axis2=-1).mean(-1)
        if (effective_number(squares) < FEWEST * squares.shape[-1]).any():
            return True
    return False


def effective_number(squares: Float[np.ndarray, "*cells n"]) -> Float[np.ndarray, "*cells"]:
    """(sum q)^2 / sum q^2: n for equal squares, 1 if one image holds all."""
    total = squares.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0.0, total**2 / (squares**2).sum(-1), squares.shape[-1])
