"""Horizon stores on disk: Zarr v3, one chunk a seed, ``done`` last.

with lock(path):
    create(path, template(...), provenance)
    for index in missing(path):
        write_cell(path, index, cell(index))
dataset = read(path)
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.disk import naming_the_disk, synchronise_tree
from analysis.errors import UsageError
from analysis.horizon import schema
from analysis.lock import writing
from analysis.provenance import Provenance
from analysis.zarr_group import attributes_of, place, read_whole

if TYPE_CHECKING:
    import xarray as xr


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Be the only writer of the store at ``path``, which need not exist yet."""
    with writing(path):
        yield


def create(path: Path, template: "xr.Dataset", provenance: Provenance) -> None:
    """Make an empty store with the labels of ``template``. UsageError where anything is at ``path``."""
    schema.validate(template)
    path = path.absolute()
    with lock(path), naming_the_disk(path):
        if path.exists():
            raise UsageError(f"{path} exists already: resume it, remove it, or write elsewhere")
        place(path, template, {**template.attrs, **provenance.to_attributes()}, later="seed")


def write_cell(path: Path, index: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of the seed at ``index``, each without the seed's axis, then its ``done``."""
    import zarr

    attributes(path)
    with lock(path), naming_the_disk(path):
        group = zarr.open_group(path, mode="r+", zarr_format=3, use_consolidated=False)
        schema.check_cell(arrays, int(_array(group, "seed")[index]))
        done = _array(group, "done")
        done[index] = False
        for name in schema.OF_CELL:
            _array(group, name)[index] = arrays[name]
            synchronise_tree(path / name)
        done[index] = True
        synchronise_tree(path / "done")


def missing(path: Path) -> list[int]:
    """Positions of the seeds that are not done. UsageError if ``path`` is no horizon store."""
    import zarr

    attributes(path)
    group = zarr.open_group(path, mode="r", zarr_format=3, use_consolidated=False)
    return np.flatnonzero(~np.asarray(_array(group, "done")[:])).tolist()


def read(path: Path) -> "xr.Dataset":
    """Dataset of a store, in memory. UsageError, one line, unless it keeps the contract."""
    attributes(path)
    return read_whole(path, schema.validate, remedy="make it again")


def provenance(path: Path) -> Provenance:
    """How a store was made."""
    try:
        return Provenance.from_attributes(attributes(path))
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{path} has no readable provenance: {type(error).__name__} {error}") from error


def attributes(path: Path) -> Mapping[str, Any]:
    """Attributes of the store, from its own metadata file. UsageError unless it is a horizon store."""
    return attributes_of(
        path, schema.check_version, otherwise="is no horizon store: want a folder that probes horizon made"
    )


def _array(group: Any, name: str) -> Any:
    array = group.get(name)
    if array is None:
        raise UsageError(f"array {name} is missing from the store {group.store_path}")
    return array
