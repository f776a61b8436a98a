"""The data contract of a horizon store, version 1.

``gram[seed, step, block, arm, arm_2]`` holds inner products in the space of the adapter's parameters. The first arm is
the baseline, and its vector is its displacement from the start; that of any other arm is its displacement *from the
baseline* after as many steps. (Differences are taken before products, so a distance of 1e-7 is not lost in squares of
1.) Everything reported is computed from these. A cell is a seed: ``done[seed]`` is written last.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import array_table
from analysis.base.gram_matrix import is_gram
from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

SCHEMA, VERSION = "sigma-probes/horizon", 1
BASELINE = "native"
_SQUARED = "squared parameter units"

ABOUT: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    # name: dimensions, numpy's kind, units, meaning
    "gram": (
        ("seed", "step", "block", "arm", "arm_2"), "f", _SQUARED,
        "inner products: the baseline's displacement from the start, every other arm's from the baseline (Eq. 13)",
    ),
    "rounding": (
        ("seed", "step", "block"), "f", _SQUARED,
        "expected squared distance of two roundings of the baseline's parameters: sum of spacing^2 / 6",
    ),
    "treated": (("seed", "step"), "i", "steps", "optimiser steps that the arm treated so far"),
    "done": (("seed",), "b", "1", "whether the seed is complete"),
    "seed": (("seed",), "i", "1", "of every draw of a run: images, noise, sigma, jitters"),
    "step": (("step",), "i", "steps", "optimiser steps taken from the start"),
    "block": (("block",), "U", "1", "transformer block, in depth order"),
    "arm": (("arm",), "U", "1", "run: the baseline, a dose of the treatment, or a jitter of the baseline"),
    "arm_2": (("arm_2",), "U", "1", "second run"),
    "dose": (("arm",), "f", "1", "share of the treatment's gradient; 0 the baseline, NaN a jitter"),
}  # fmt: skip
OF_CELL = ("gram", "rounding", "treated")
"""The arrays of a seed besides ``done``."""


def template(
    seeds: Sequence[int],
    steps: Sequence[int],
    blocks: Sequence[str],
    doses: Mapping[str, float],
    jitters: Sequence[str],
    about: Mapping[str, str | float] | None = None,
) -> "xr.Dataset":
    """Dataset of the contract with every label and no seed done.

    doses: by the names of their runs, growing; about: attributes for the reader, such as ``treatment``.
    """
    import xarray as xr

    arms = np.array([BASELINE, *doses, *jitters])
    sizes = {"seed": len(seeds), "step": len(steps), "block": len(blocks), "arm": len(arms), "arm_2": len(arms)}
    fill = {"f": np.nan, "i": 0, "b": False}
    dtypes = {"f": np.float64, "i": np.int64, "b": np.bool_}
    arrays = {
        name: (ABOUT[name][0], np.full([sizes[dim] for dim in ABOUT[name][0]], fill[kind], dtypes[kind]))
        for name, kind in (("gram", "f"), ("rounding", "f"), ("treated", "i"), ("done", "b"))
    }
    arrays["dose"] = ("arm",), np.array([0.0, *doses.values(), *[np.nan] * len(jitters)])
    coordinates = {
        "seed": np.array(seeds, np.int64),
        "step": np.array(steps, np.int64),
        "block": np.array(blocks, dtype=str),
        "arm": arms,
        "arm_2": arms,
    }
    return array_table.described(xr.Dataset(arrays, coordinates, dict(about or {})), ABOUT, SCHEMA, VERSION)


def check_version(attributes: Mapping[str, Any]) -> None:
    """Raise UsageError unless the attributes are those of a store that this version reads."""
    array_table.check_version(attributes, SCHEMA, VERSION, what="a horizon store")


def validate(dataset: "xr.Dataset") -> None:
    """Raise UsageError, one line, unless the dataset keeps the contract and its done seeds can be what was measured."""
    check_version(dataset.attrs)
    array_table.check_arrays(dataset, ABOUT)
    if dataset["arm"].values.tolist() != dataset["arm_2"].values.tolist():
        raise UsageError("coordinate arm_2 differs from arm; want the same labels in one order")
    steps = dataset["step"].values
    if steps.size == 0 or steps[0] < 1 or (np.diff(steps) <= 0).any():
        raise UsageError(f"coordinate step is {steps.tolist()}; want growing whole numbers from 1 on")
    if dataset["dose"].values[0] != 0:
        raise UsageError("the first arm has a dose; want the baseline, of dose 0")
    for index in np.flatnonzero(dataset["done"].values).tolist():
        cell = {name: dataset[name].isel(seed=index).values for name in OF_CELL}
        check_cell(cell, int(dataset["seed"].values[index]))


def check_cell(cell: Mapping[str, np.ndarray], seed: int) -> None:
    """Raise UsageError unless one seed's arrays can be what a rollout gives."""
    if not np.isfinite(cell["gram"]).all() or not np.isfinite(cell["rounding"]).all():
        raise UsageError(f"seed {seed} is done and its figures are not finite: make the store again")
    if not is_gram(cell["gram"]) or (cell["rounding"] < 0).any():
        raise UsageError(f"array gram of seed {seed} is no set of Gram matrices: not symmetric, or negative squares")
