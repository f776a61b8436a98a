"""End-point stores on disk: one Zarr v3 group, there whole or not at all.

It is small and derived from adapters that are still there, so a new one takes the place of an old one.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.disk import naming_the_disk, synchronise, synchronise_tree
from analysis.endpoints import schema
from analysis.lock import writing
from analysis.zarr_group import attributes_of, build, read_whole

if TYPE_CHECKING:
    import xarray as xr

LOST = {"f": float("nan"), "i": -2, "b": False, "U": "?"}
"""What a lost chunk reads as: nothing that is ever written, or, of a certificate, that there is none."""


def write(path: Path, dataset: "xr.Dataset") -> None:
    """Write the store, in place of an end-point store that stands there; UsageError if anything else does."""
    schema.validate(dataset)
    path = path.absolute()
    partial, aside = (path.with_name(f".{path.name}.{kind}") for kind in ("partial", "replaced"))
    with naming_the_disk(path), writing(path):
        if aside.exists() and not path.exists():
            aside.rename(path)  # a writer was killed between its two renames
        if path.exists():
            attributes(path)
        for left in (partial, aside):
            shutil.rmtree(left, ignore_errors=True)
        try:
            build(partial, dataset, dataset.attrs, fill=LOST)
            synchronise_tree(partial)
            if path.exists():
                path.rename(aside)
            partial.rename(path)
        finally:
            if aside.exists() and not path.exists():
                aside.rename(path)
            shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)
        synchronise(path.parent)


def read(path: Path) -> "xr.Dataset":
    """Dataset of a store, in memory. UsageError, one line, unless it keeps the contract."""
    attributes(path)
    return read_whole(path, schema.validate, remedy="make it again from the runs")


def is_store(path: Path) -> bool:
    """Whether a folder is a Zarr group of any kind."""
    return (path / "zarr.json").is_file()


def attributes(path: Path) -> Mapping[str, Any]:
    """Attributes of the store, from its own metadata file. UsageError unless it is an end-point store."""
    return attributes_of(path, schema.check_version, otherwise="is there and is no end-point store: give another place")
