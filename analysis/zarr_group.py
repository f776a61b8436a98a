"""One dataset as one Zarr v3 group: text as variable-length strings, chunks with a checksum."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

FILL = {"f": float("nan"), "i": 0, "b": False, "U": ""}
"""What an element that was never written reads as, by numpy's dtype kind."""


def build(path: Path, dataset: "xr.Dataset", attributes: Mapping[str, Any], *, later: str | None = None) -> None:
    """Make the group at ``path``, which does not exist. Arrays with the dimension ``later`` are left unwritten.

    Those are one chunk for each of its labels; any other array is one chunk.
    """
    import zarr
    from zarr.codecs import Crc32cCodec, ZstdCodec

    group = zarr.create_group(path, zarr_format=3, attributes=dict(attributes))
    for name, variable in dataset.variables.items():
        kind = "U" if variable.dtype.kind in "UTO" else variable.dtype.kind
        array = group.create_array(
            str(name),
            shape=variable.shape,
            chunks=tuple(1 if dim == later else max(size, 1) for dim, size in variable.sizes.items()),
            dtype=np.dtypes.StringDType() if kind == "U" else variable.dtype,
            fill_value=FILL[kind],
            compressors=[ZstdCodec(level=1), Crc32cCodec()],
            chunk_key_encoding={"name": "default", "separator": "."},
            dimension_names=[str(dim) for dim in variable.dims],
            attributes=dict(variable.attrs),
        )
        if later not in variable.dims or name == later:
            array[...] = variable.values.astype(np.dtypes.StringDType()) if kind == "U" else variable.values


def with_fixed_text(dataset: "xr.Dataset") -> "xr.Dataset":
    """Text of variable length as numpy's fixed width, which netCDF and older xarray know."""
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "TO":
            text = (variable.dims, np.asarray(variable.values.tolist(), dtype=str), variable.attrs)
            dataset = dataset.assign_coords({name: text}) if name in dataset.coords else dataset.assign({name: text})
    return dataset
