"""Windows of sigma in which an arm is safe, with a claim that holds for all of them at once.

    for window in windows(assess(dataset, margin=0.2), "raw"):
        print(window.arm, window.lo, window.hi)

A window is a run of neighbouring grid points that are all safe; nothing is said between grid points. sigma = 1 is its
own window: the input there is noise alone, and no neighbour vouches for it. The points are chosen by the data, so their
p values are adjusted by Holm's procedure over the grid, per arm.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis.base import holm
from analysis.errors import UsageError
from analysis.schema import TOTAL
from analysis.verdict import HARMFUL, LEVEL, SAFE


@dataclass(frozen=True)
class Window:
    """One run of grid points: ``lo`` and ``hi`` are its ends, ``sigmas`` every point in it, ``claim`` what it says."""

    arm: str
    lo: float
    hi: float
    sigmas: tuple[float, ...]
    claim: str
    verdict: str = SAFE


def windows(
    assessed: xr.Dataset,
    metric: str | None = None,
    *,
    verdict: str = SAFE,
    every_block: bool = False,
    level: float = LEVEL,
) -> list[Window]:
    """Windows of every arm, in the order of arms and sigma, at one metric (the first by default).

    ``verdict`` is "safe" or "harmful". They are about the sum over blocks, or with ``every_block`` about each block:
    safe in every block is an intersection-union test, whose p is the largest over blocks, uncorrected; harmful is not
    defined there. ``level`` is one-sided and holds for all listed grid points of an arm together.
    """
    if verdict not in (SAFE, HARMFUL):
        raise UsageError(f"windows are of verdict safe or harmful, not {verdict!r}")
    if verdict == HARMFUL and every_block:
        raise UsageError("harmful windows are about the sum over blocks; leave every_block out")
    metrics = assessed["metric"].values.tolist()
    chosen = metrics[0] if metric is None else metric
    if chosen not in metrics:
        raise UsageError(f"metric {chosen!r} is not in this store; it has {', '.join(metrics)}")
    p_values = assessed[f"p_{verdict}"].sel(metric=chosen)
    p_values = _over_blocks(p_values) if every_block else p_values.sel(block=TOTAL)
    adjusted = holm.adjusted(p_values.transpose("sigma", "arm").values)
    sigmas = assessed["sigma"].values.tolist()
    found = []
    for column, arm in enumerate(assessed["arm"].values.tolist()):
        for run in _runs(adjusted[:, column] < level, sigmas):
            claim = _claim(assessed, str(arm), run, verdict, every_block, level)
            found.append(Window(str(arm), run[0], run[-1], tuple(run), claim, verdict))
    return found


def _over_blocks(p_values: xr.DataArray) -> xr.DataArray:
    """Largest p value over the blocks; a block whose p value is NaN is not shown to be safe."""
    blocks = p_values.drop_sel(block=TOTAL)
    return blocks.fillna(1.0).max("block")


def _runs(kept: np.ndarray, sigmas: list[float]) -> Iterator[list[float]]:
    """Runs of neighbouring kept grid points; sigma = 1 never joins one."""
    run: list[float] = []
    for keep, sigma in zip(kept.tolist(), sigmas, strict=True):
        if run and (not keep or sigma == 1.0):
            yield run
            run = []
        if keep:
            run.append(sigma)
    if run:
        yield run


def _claim(assessed: xr.Dataset, arm: str, run: list[float], verdict: str, every_block: bool, level: float) -> str:
    """What may be said of a window, in one sentence."""
    place = (
        f"at sigma {run[0]:g}" if len(run) == 1 else f"at each of the {len(run)} grid sigmas {run[0]:g} to {run[-1]:g}"
    )
    where = " in every block" if every_block else ""
    attributes = assessed.attrs
    return (
        f"{arm} is {verdict}{where} {place} (rule {attributes['rule']}, margin {attributes['margin']:g}, population "
        f"{attributes['population']}): with {100 * (1 - 2 * level):g} % confidence this holds at every listed grid "
        "sigma; nothing is said between them"
    )
