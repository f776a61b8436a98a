"""Probe stores on disk: Zarr v3, one chunk per cell (a sigma, or a sigma of one step), complete cells only.

A store is made with every label and no cell, then filled cell by cell::

    with lock(path):
        create(path, template(...), provenance)
        for index in missing(path):
            write_cell(path, index, cell(index))
    dataset = open_store(path)

``done`` reaches the disk after everything else of its cell, so a writer may be killed at any moment: the cells
that are not done are written again, and the arrays end the same. Any Zarr v3 reader opens a store
(``xarray.open_zarr(path, consolidated=False)``). A cell of one array is one chunk and must fit in memory.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from analysis import cells, policy_store, schema
from analysis.atomic import replacing
from analysis.contract import STEP, is_of_cell
from analysis.disk import naming_the_disk, synchronise
from analysis.errors import UsageError
from analysis.lock import writing
from analysis.provenance import Provenance
from analysis.steps import at_step
from analysis.zarr_group import place, with_fixed_text

if TYPE_CHECKING:
    import xarray as xr
    import zarr


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Be the only writer of the store at ``path``, which need not exist yet; remove what killed writers left in it.

    The same process may ask again. Raises UsageError if another process is writing it.
    """
    with writing(path) as taken:
        if taken and _is_store(path):
            _remove_stale(path)
        yield


def create(path: Path, template: "xr.Dataset", provenance: Provenance) -> None:
    """Make an empty store at ``path`` with the labels of ``template`` and every array of it that is of no cell.

    It is built in a hidden sibling and renamed, so it is there whole or not at all. Raises UsageError if ``path``
    exists.
    """
    schema.validate(template, contents=False)
    path = path.absolute()
    with lock(path), naming_the_disk(path):
        if path.exists():
            raise UsageError(f"{path} exists already: resume it, remove it, or write elsewhere")
        place(path, template, {**template.attrs, **provenance.to_attributes()}, later="sigma", apart=[STEP])


def write_cell(path: Path, index: int, arrays: Mapping[str, Any]) -> None:
    """Write every array of one cell, then its ``done``; cells are counted as ``missing`` does.

    ``arrays`` holds all arrays of the store that are of cells except ``done``, each without the dimensions of cells
    (``gram_image[metric, block, arm, image, arm_2, image_2]``, ``images_used[]``). Nothing is touched unless names,
    shapes and contents are right: KeyError or ValueError for names or shapes (a programming error), DamagedCell for
    contents. UsageError if the disk is full or another process writes the store; other cells are then as they were.
    """
    with lock(path), naming_the_disk(path):
        group = _open_group(path, "r+")
        cell = _checked(group, index, arrays)
        done = _array(group, "done")
        at = cells.place(_sizes(done), index)
        done[_at(done, at)] = False
        for name, values in cell.items():
            array = _array(group, name)
            array[_at(array, at)] = values
            _synchronise_chunk(path, array, at)
        done[_at(done, at)] = True
        _synchronise_chunk(path, done, at)


def write(path: Path, dataset: "xr.Dataset", provenance: Provenance) -> None:
    """Make a store of a whole dataset: ``create``, then every cell that is done in it, then what policies need."""
    schema.validate(dataset)
    with lock(path):
        create(path, policy_store.without(dataset), provenance)
        names = [name for name, array in dataset.data_vars.items() if is_of_cell(array.dims) and name != "done"]
        for index in np.flatnonzero(dataset["done"].values).tolist():
            at = cells.place(dataset.sizes, index)
            write_cell(path, index, {str(name): dataset[name].isel(at).values for name in names})
        policy_store.add(path, dataset)


def missing(path: Path) -> list[int]:
    """Indices of the cells that are not done. Raises UsageError if ``path`` is no probe store.

    They are those of the sigmas or, in a store of several steps, count the sigmas of the first step, then the next's.
    """
    group = _open_group(path, "r")
    try:
        done = np.asarray(_array(group, "done")[...])
    except Exception as error:  # zarr's codecs raise errors of many unrelated types
        raise UsageError(f"{path}: array done cannot be read ({_first_line(error)})") from error
    return np.flatnonzero(~done).tolist()


def open_store(path: Path, *, contents: bool = True) -> "xr.Dataset":
    """Dataset of a store, its arrays read when they are used.

    Raises UsageError, one line, unless it keeps the contract; with ``contents`` every done cell is read once to see.
    """
    import xarray as xr

    _attributes(path)
    try:
        dataset = xr.open_zarr(path, consolidated=False, chunks=None)
    except Exception as error:  # zarr and xarray raise errors of many unrelated types for broken metadata
        raise UsageError(f"{path} is a damaged store: {_first_line(error)}") from error
    dataset = with_fixed_text(dataset)
    try:
        schema.validate(dataset, contents=contents)
    except schema.DamagedCell as error:
        chunk = ".".join(map(str, ["c", *cells.place(dataset.sizes, error.index).values()]))
        remedy = f"remove {path}/done/{chunk} and run the sweep again to make that cell anew"
        raise UsageError(f"{path}: {error}: {remedy}") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return dataset


def provenance(path: Path) -> Provenance:
    """Provenance of a store. Raises UsageError if ``path`` is no probe store or its provenance cannot be read."""
    try:
        return Provenance.from_attributes(_attributes(path))
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{path} has no readable provenance: {type(error).__name__} {_first_line(error)}") from error


def export(path: Path, out: Path, *, step: int | None = None) -> None:
    """Write a store, or one step of it, to one netCDF file (HDF5), which replaces ``out`` when it is complete.

    The file is made in memory, because HDF5 may crash on a disk that fills up. Raises UsageError for a bad store or a
    full disk.
    """
    dataset = open_store(path)
    if step is not None:
        dataset = schema.described(at_step(dataset, step))
    content = dataset.load().to_netcdf(engine="h5netcdf")
    with writing(out), replacing(out) as partial:
        partial.write_bytes(content)


def _checked(group: "zarr.Group", index: int, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The cell's arrays as the store's dtypes, in the order they are written."""
    held = {str(name): array for name, array in group.arrays() if is_of_cell(_dims(array))}
    wanted = [name for name in sorted(held) if name not in ("done", "sigma")]
    if sorted(arrays) != wanted:
        raise KeyError(f"a cell of this store has the arrays {wanted}; got {sorted(arrays)}")
    cell = {name: np.asarray(arrays[name], dtype=held[name].dtype) for name in wanted}
    for name, values in cell.items():
        shape = tuple(size for dim, size in _sizes(held[name]).items() if dim not in cells.CELL)
        if values.shape != shape:
            raise ValueError(f"array {name} of a cell has shape {list(values.shape)}; want {list(shape)}")
    sizes = _sizes(held["done"])
    if not 0 <= index < cells.count(sizes):
        raise ValueError(f"index of a cell is {index}; want 0 to {cells.count(sizes) - 1}")
    at = cells.place(sizes, index)
    where = ", ".join(f"{name} {float(np.asarray(_array(group, name)[i])):g}" for name, i in at.items())
    schema.check_cell(cell, where, index)
    return cell


def _open_group(path: Path, mode: Literal["r", "r+"]) -> "zarr.Group":
    import zarr

    _attributes(path)
    return zarr.open_group(path, mode=mode, zarr_format=3, use_consolidated=False)


def _attributes(path: Path) -> dict[str, Any]:
    """Attributes of the store, from its own metadata file. Raises UsageError unless it is a probe store."""
    try:
        attributes = json.loads((path / "zarr.json").read_text())["attributes"]
        schema.check_version(attributes)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path} is not a store: want a folder that probes grad made") from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: not a probe store: its zarr.json cannot be read as one") from error
    return attributes


def _is_store(path: Path) -> bool:
    try:
        _attributes(path)
    except UsageError:
        return False
    return True


def _array(group: "zarr.Group", name: str) -> "zarr.Array[Any]":
    import zarr

    array = group.get(name)
    if not isinstance(array, zarr.Array):
        raise UsageError(f"array {name} is missing from the store {group.store_path}")
    return array


def _dims(array: "zarr.Array[Any]") -> tuple[str | None, ...]:
    return getattr(array.metadata, "dimension_names", None) or ()


def _sizes(array: "zarr.Array[Any]") -> dict[str | None, int]:
    return dict(zip(_dims(array), array.shape, strict=True))


def _at(array: "zarr.Array[Any]", at: Mapping[str, int]) -> tuple[Any, ...]:
    """Selects the cell at ``at`` from an array."""
    return tuple(at.get(str(dim), slice(None)) for dim in _dims(array))


def _synchronise_chunk(path: Path, array: "zarr.Array[Any]", at: Mapping[str, int]) -> None:
    """Wait for a cell's chunk; a chunk that holds only the fill value has no file."""
    place = tuple(at.get(str(dim), 0) for dim in _dims(array))
    chunk = path / array.basename / array.metadata.encode_chunk_key(place)
    if chunk.exists():
        synchronise(chunk)
    synchronise(chunk.parent)


def _remove_stale(path: Path) -> None:
    """Remove what writers that were killed left inside a probe store. The caller holds the lock."""
    for folder, _, files in os.walk(path):
        for name in files:
            if name.endswith(".partial"):
                Path(folder, name).unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
