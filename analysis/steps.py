"""Stores of several checkpoints of one run: which steps there are, and one of them as a dataset of its own."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from analysis.contract import STEP
from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr


def steps_of(dataset: "xr.Dataset") -> tuple[int, ...]:
    """The steps of its checkpoints, none where it is of one adapter."""
    return tuple(dataset[STEP].values.tolist()) if STEP in dataset.dims else ()


def at_step(dataset: "xr.Dataset", step: int | None) -> "xr.Dataset":
    """What the dataset holds at ``step``, without that dimension; None: of the only one, or of the one adapter.

    Raises UsageError for a step that it does not hold, and where one of several has to be chosen.
    """
    steps = steps_of(dataset)
    if not steps:
        if step is not None:
            raise UsageError(f"step {step}: this store is of one adapter and has no steps; leave --step out")
        return dataset
    listed = ", ".join(map(str, steps))
    if step is None and len(steps) > 1:
        raise UsageError(f"this store holds checkpoints after {listed} steps; choose one with --step")
    if step is not None and step not in steps:
        raise UsageError(f"step {step} is not in this store; it has {listed}")
    chosen = min(steps) if step is None else step
    return dataset.isel({STEP: int(np.flatnonzero(dataset[STEP].values == chosen)[0])}, drop=True)


def joined(parts: "Mapping[int, xr.Dataset]") -> "xr.Dataset":
    """Datasets of one adapter each, by step, as one with the dimension ``step``: what ``at_step`` takes apart."""
    import xarray as xr

    from analysis.schema import described

    steps = xr.Variable((STEP,), np.asarray(sorted(parts), dtype=np.int64))
    whole = xr.concat(
        [parts[step] for step in sorted(parts)],
        steps,
        data_vars="all",
        coords="minimal",
        compat="override",
        join="exact",
    )
    return described(whole.assign_attrs(parts[min(parts)].attrs))
