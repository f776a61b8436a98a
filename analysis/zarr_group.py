"""One dataset as one Zarr v3 group: text as variable-length strings, chunks with a checksum."""

import json
import shutil
from collections.abc import Callable, Collection, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.disk import synchronise, synchronise_tree
from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr
    import zarr

FILL = {"f": float("nan"), "i": 0, "b": False, "U": ""}
"""What an element that was never written reads as, by numpy's dtype kind."""


def build(
    path: Path,
    dataset: "xr.Dataset",
    attributes: Mapping[str, Any],
    *,
    later: str | None = None,
    apart: Collection[str] = (),
    fill: Mapping[str, Any] = FILL,
) -> None:
    """Make the group at ``path``, which does not exist. Arrays with the dimension ``later`` are left unwritten.

    A chunk has one label of that dimension and of those ``apart``, and all labels of any other. A chunk of nothing but
    its kind's ``fill`` has no file, and so reads like one that was lost.
    """
    import zarr

    group = zarr.create_group(path, zarr_format=3, attributes=dict(attributes))
    for name, variable in dataset.variables.items():
        whole = [dim for dim in variable.dims if dim != later and dim not in apart]
        array = add(group, str(name), variable, whole=whole, fill=fill)
        if later not in variable.dims or name == later:
            array[...] = _text(variable) if array.dtype == np.dtypes.StringDType() else variable.values


def place(
    path: Path,
    dataset: "xr.Dataset",
    attributes: Mapping[str, Any],
    *,
    later: str | None = None,
    apart: Collection[str] = (),
) -> None:
    """``build`` in a hidden sibling, which then takes its name: the group is there whole or not at all.

    The caller holds the lock of ``path``, at which there is nothing. Raises OSError for what the disk refuses.
    """
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        build(partial, dataset, attributes, later=later, apart=apart)
        synchronise_tree(partial)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    synchronise(path.parent)


def add(
    group: "zarr.Group",
    name: str,
    variable: "xr.Variable",
    *,
    whole: Collection[Hashable],
    compressed: bool = True,
    fill: Mapping[str, Any] = FILL,
) -> "zarr.Array[Any]":
    """Make an array like ``variable`` without its values. A chunk has all of the dimensions ``whole``, one of others.

    Only names, shapes and dtypes are looked at, so the values may be a view of one number. Not ``compressed``: faster
    to read, and no larger where every bit is noise.
    """
    from zarr.codecs import Crc32cCodec, ZstdCodec

    kind = "U" if variable.dtype.kind in "UTO" else variable.dtype.kind
    return group.create_array(
        name,
        shape=variable.shape,
        chunks=tuple(max(size, 1) if dim in whole else 1 for dim, size in variable.sizes.items()),
        dtype=np.dtypes.StringDType() if kind == "U" else variable.dtype,
        fill_value=fill[kind],
        compressors=[*([ZstdCodec(level=1)] if compressed else []), Crc32cCodec()],
        chunk_key_encoding={"name": "default", "separator": "."},
        dimension_names=[str(dim) for dim in variable.dims],
        attributes=dict(variable.attrs),
    )


def _text(variable: "xr.Variable") -> np.ndarray:
    return variable.values.astype(np.dtypes.StringDType())


def with_fixed_text(dataset: "xr.Dataset") -> "xr.Dataset":
    """Text of variable length as numpy's fixed width, which netCDF and older xarray know."""
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "TO":
            text = (variable.dims, np.asarray(variable.values.tolist(), dtype=str), variable.attrs)
            dataset = dataset.assign_coords({name: text}) if name in dataset.coords else dataset.assign({name: text})
    return dataset


def attributes_of(path: Path, check: Callable[[Mapping[str, Any]], None], *, otherwise: str) -> Mapping[str, Any]:
    """Attributes of a group, from its own metadata file. UsageError by ``check``, or ``otherwise`` without any."""
    try:
        found = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]
        check(found)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} {otherwise}") from None
    return found


def read_whole(path: Path, validate: "Callable[[xr.Dataset], None]", *, remedy: str) -> "xr.Dataset":
    """The dataset of a small group, in memory. UsageError, one line, unless it can be read and passes ``validate``."""
    import xarray as xr

    try:
        dataset = xr.open_zarr(path, consolidated=False, chunks=None).load()
    except Exception as error:  # zarr and its codecs raise errors of many unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"{path} is a damaged store: {reason}; {remedy}") from error
    dataset = with_fixed_text(dataset)
    try:
        validate(dataset)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return dataset
