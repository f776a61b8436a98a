"""Contracts that are a table of arrays, name -> (dimensions, kind, units, meaning), and the version of any store."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

Table = Mapping[str, tuple[tuple[str, ...], str, str, str]]
"""kind: numpy's, "U" for text of any width."""


def check_version(attributes: Mapping[str, Any], schema: str, version: int, *, what: str) -> None:
    """Raise UsageError unless the attributes are those of ``schema``, up to ``version``. what: "a probe store"."""
    if attributes.get("schema") != schema:
        raise UsageError(f"not {what}: attribute schema is {attributes.get('schema')!r}; want {schema!r}")
    found = attributes.get("schema_version")
    if isinstance(found, bool) or not isinstance(found, int | np.integer) or found < 1:
        raise UsageError(f"attribute schema_version is {found!r}; want a whole number from 1 to {version}")
    if found > version:
        raise UsageError(f"schema version {found} is newer than {version}, the last this program reads: update it")


def check_arrays(dataset: "xr.Dataset", table: Table) -> None:
    """Raise UsageError, one line, unless the dataset has every array of the table in its dimensions and kind."""
    for name, (dims, kind, _, _) in table.items():
        if name not in dataset.variables:
            raise UsageError(f"array {name} is missing; want {name}[{', '.join(dims)}]")
        got = dataset[name]
        if got.dims != dims:
            raise UsageError(f"array {name} has dimensions {list(got.dims)}; want {list(dims)}")
        if ("U" if got.dtype.kind in "UTO" else got.dtype.kind) != kind:
            raise UsageError(f"array {name} has dtype {got.dtype}; want one of kind {kind}")


def described(dataset: "xr.Dataset", table: Table, schema: str, version: int) -> "xr.Dataset":
    """The same with the table's units and long names, and the schema's name and version."""
    dataset = dataset.assign_attrs(schema=schema, schema_version=version)
    for name, (_, _, units, long_name) in table.items():
        dataset[name] = dataset[name].assign_attrs(units=units, long_name=long_name)
    return dataset
