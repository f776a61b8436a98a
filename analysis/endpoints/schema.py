"""The data contract of an end-point store, version 1.

``displacement[step, block, arm, arm_2]`` holds the inner products <dW_a, dW_b> (Eq. 15) of what runs did to an adapter;
``arm`` is a run's name. Cosines, floors and verdicts are computed from it later. What is known of each run lies on the
dimension ``arm``; runs of equal ``command`` and ``treatment`` are twins.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis import array_table
from analysis.base.gram_matrix import is_gram
from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

SCHEMA, VERSION = "sigma-probes/endpoints", 1

ABOUT: dict[str, tuple[tuple[str, ...], str, str, str]] = {
    # name: dimensions, numpy's kind, units, meaning
    "displacement": (
        ("step", "block", "arm", "arm_2"), "f", "squared weight units", "inner products of displacements (Eq. 15)",
    ),
    "differing_tensors": (
        ("step", "block", "arm", "arm_2"), "i", "tensors", "adapter tensors and scales that are not equal",
    ),
    "treated_steps": (("step", "arm"), "i", "steps", "optimiser steps that were treated so far; -1 unknown"),
    "step": (("step",), "i", "steps", "optimiser steps of the checkpoint; 0 for a LoRA file, whose steps are unknown"),
    "block": (("block",), "U", "1", "transformer block, in depth order"),
    "arm": (("arm",), "U", "1", "run, or LoRA file"),
    "arm_2": (("arm_2",), "U", "1", "second run, or LoRA file"),
    "treatment": (("arm",), "U", "1", "how its steps were made; empty where unknown"),
    "window_lo": (("arm",), "f", "1", "the treatment acts where window_lo < sigma <= window_hi"),
    "window_hi": (("arm",), "f", "1", "the treatment acts where window_lo < sigma <= window_hi"),
    "dose": (("arm",), "f", "1", "share of its steps that were treated, at the last checkpoint"),
    "certified": (("arm",), "b", "1", "whether a certificate of determinism was granted for the run"),
    "deterministic": (("arm",), "b", "1", "whether determinism was asked for"),
    "command": (("arm",), "U", "1", "digest of every setting but the arm, and of model, adapter and data; or empty"),
    "environment": (("arm",), "U", "1", "digest of device, versions and threads, without determinism's own switches"),
}  # fmt: skip


def described(dataset: "xr.Dataset") -> "xr.Dataset":
    """The same with the contract's units and long names, and the schema's name and version."""
    return array_table.described(dataset, ABOUT, SCHEMA, VERSION)


def check_version(attributes: Mapping[str, Any]) -> None:
    """Raise UsageError unless the attributes are those of a store that this version reads."""
    array_table.check_version(attributes, SCHEMA, VERSION, what="an end-point store")


def validate(dataset: "xr.Dataset") -> None:
    """Raise UsageError, one line, unless the dataset keeps the contract and its figures can be inner products."""
    check_version(dataset.attrs)
    array_table.check_arrays(dataset, ABOUT)
    for name, (_, kind, _, _) in ABOUT.items():
        values = dataset[name].values
        if (kind == "i" and (values < -1).any()) or (kind == "U" and (values == "?").any()):
            raise UsageError(f"array {name} has lost values")
    if (dataset["differing_tensors"].values < 0).any():
        raise UsageError("array differing_tensors has negative counts")
    if not is_gram(dataset["displacement"].values):
        raise UsageError("array displacement is no set of Gram matrices: not finite, not symmetric or negative squares")
