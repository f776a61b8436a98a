"""Published records as one Zarr v3 group, there whole or not at all."""

import hashlib
from pathlib import Path

import xarray as xr

from analysis.disk import naming_the_disk
from analysis.errors import UsageError
from analysis.lock import writing
from analysis.zarr_group import place


def write(path: Path, dataset: xr.Dataset, *, source: Path) -> None:
    """Write the store, with the name and SHA-256 of the file it came from. UsageError if ``path`` exists."""
    path = path.absolute()
    digest = f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()}"
    with naming_the_disk(path), writing(path):
        if path.exists():
            raise UsageError(f"{path} exists already: remove it, or write elsewhere")
        place(path, dataset, {**dataset.attrs, "source": source.name, "source_hash": digest})
