"""The data contract of an end-point store, version 1.

``displacement[step, block, arm, arm_2]`` holds the inner products <dW_a, dW_b> (Eq. 15) of what runs did to an adapter;
``arm`` is a run's name. Cosines, floors and verdicts are computed from it later. What is known of each run lies on the
dimension ``arm``; runs of equal ``command`` and ``treatment`` are twins.
"""

from typing import TYPE_CHECKING, Any

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
    dataset = dataset.assign_attrs(schema=SCHEMA, schema_version=VERSION)
    for name, (_, _, units, long_name) in ABOUT.items():
        dataset[name] = dataset[name].assign_attrs(units=units, long_name=long_name)
    return dataset


def check_version(attributes: dict[str, Any]) -> None:
    """Raise UsageError unless the attributes are those of a store that this version reads."""
    if attributes.get("schema") != SCHEMA:
        raise UsageError(f"not an end-point store: attribute schema is {attributes.get('schema')!r}; want {SCHEMA!r}")
    version = attributes.get("schema_version")
    if type(version) is not int or not version >= 1:
        raise UsageError(f"attribute schema_version is {version!r}; want a whole number from 1 to {VERSION}")
    if version > VERSION:
        raise UsageError(f"schema version {version} is newer than {VERSION}, the last this program reads: update it")


def validate(dataset: "xr.Dataset") -> None:
    """Raise UsageError, one line, unless the dataset keeps the contract and its figures can be inner products."""
    import numpy as np

    check_version(dataset.attrs)
    for name, (dims, kind, _, _) in ABOUT.items():
        if name not in dataset.variables:
            raise UsageError(f"array {name} is missing; want {name}[{', '.join(dims)}]")
        got = dataset[name]
        if got.dims != dims:
            raise UsageError(f"array {name} has dimensions {list(got.dims)}; want {list(dims)}")
        if ("U" if got.dtype.kind in "UTO" else got.dtype.kind) != kind:
            raise UsageError(f"array {name} has dtype {got.dtype}; want one of kind {kind}")
        values = got.values
        if (kind == "i" and (values < -1).any()) or (kind == "U" and (values == "?").any()):
            raise UsageError(f"array {name} has lost values")
    if (dataset["differing_tensors"].values < 0).any():
        raise UsageError("array differing_tensors has negative counts")
    gram = dataset["displacement"].values
    size = np.sqrt(np.abs(np.diagonal(gram, axis1=-2, axis2=-1)))
    bound = 1e-9 * size[..., :, None] * size[..., None, :]
    symmetric = np.abs(gram - gram.swapaxes(-1, -2)) <= bound
    if not np.isfinite(gram).all() or not symmetric.all() or (np.diagonal(gram, axis1=-2, axis2=-1) < 0).any():
        raise UsageError("array displacement is no set of Gram matrices: not finite, not symmetric or negative squares")
