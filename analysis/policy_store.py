"""The arrays that policies over sigma need (Eq. 6), added to a finished probe store: whole or not at all.

They are built, a chunk for each metric and block (of each step, where the store has several), in a hidden sibling of
the store, so a killed builder goes on where it was; then each is renamed into the store, ``gram_policy`` last. So where
that is, all are::

    with building(path, folds, corpus=True) as build:
        for name, at in build.missing():
            build.write(name, at, gram)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from analysis.contract import ARRAYS, COORDINATES, POLICY, STEP, dims_of
from analysis.disk import naming_the_disk, synchronise, synchronise_tree
from analysis.zarr_group import add as add_array

if TYPE_CHECKING:
    import xarray as xr
    import zarr

LABELS = ("sigma_2", "fold", "fold_2")
GRAMS = ("gram_policy_corpus", "gram_policy")
"""In the order in which they come into the store."""


def without(dataset: "xr.Dataset") -> "xr.Dataset":
    """The same without what this module adds."""
    return dataset.drop_vars([*POLICY, *LABELS], errors="ignore")


def is_there(path: Path) -> bool:
    """Whether the store at ``path`` has them."""
    return (path / "gram_policy" / "zarr.json").exists()


@dataclass(frozen=True)
class Build:
    """The group that is being filled. sizes: how many metrics and blocks, before them how many steps if there are."""

    group: "zarr.Group"
    folder: Path
    sizes: tuple[int, ...]

    @property
    def grams(self) -> list[str]:
        """Those of ``GRAMS`` that are to be made."""
        return [name for name in GRAMS if name in self.group]

    def missing(self) -> list[tuple[str, tuple[int, ...]]]:
        """(array, place) of the chunks that are not there yet; a place is (metric, block), or (step, metric, block)."""
        every = [(name, at) for name in self.grams for at in np.ndindex(*self.sizes)]
        return [(name, at) for name, at in every if not self._chunk(name, at).exists()]

    def write(self, name: str, at: tuple[int, ...], gram: np.ndarray) -> None:
        """Gram matrices at one place: [sigma, arm, unit, sigma, arm, unit], float64."""
        import zarr

        with naming_the_disk(self.folder):
            array = self.group[name]
            assert isinstance(array, zarr.Array)
            array[at] = gram
            synchronise(self._chunk(name, at))

    def _chunk(self, name: str, at: tuple[int, ...]) -> Path:
        return self.folder / name / ".".join(["c", *map(str, at), *["0"] * 6])


@contextmanager
def building(path: Path, fold_of_image: np.ndarray, *, corpus: bool) -> Iterator[Build]:
    """Begin, or go on with, the arrays of the store at ``path``; after the block they come into the store.

    fold_of_image: [image], the fold of each, from 0; corpus: whether there are folds of draws too. After an error all
    chunks that were written stay for the next attempt. The caller holds the store's lock.
    """
    import shutil

    import xarray as xr
    import zarr

    folder = _folder(path)
    store = xr.open_zarr(path, consolidated=False, chunks=None)
    folds = np.arange(fold_of_image.max() + 1)
    names = [name for name in (STEP, "metric", "block", "sigma", "arm", "draw") if name in store.dims]
    labels = {name: store[name].values for name in names} | {"fold": folds}
    with naming_the_disk(path):
        if not (folder / "zarr.json").exists():
            made = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(made, ignore_errors=True)
            _make(zarr.create_group(made, zarr_format=3), labels, fold_of_image, corpus)
            synchronise_tree(made)
            made.rename(folder)
    group = zarr.open_group(folder, mode="r+", zarr_format=3, use_consolidated=False)
    yield Build(group, folder, tuple(labels[name].size for name in (STEP, "metric", "block") if name in labels))
    with naming_the_disk(path):
        for name in [name for name in (*LABELS, "fold_of_image", *GRAMS) if (folder / name).exists()]:
            (folder / name).rename(path / name)
            synchronise(path)
        shutil.rmtree(folder)


def remove_leftover(path: Path) -> None:
    """What a builder left beside the store that was killed when all had come into it."""
    import shutil

    shutil.rmtree(_folder(path), ignore_errors=True)


def add(path: Path, dataset: "xr.Dataset") -> None:
    """The arrays as ``dataset`` has them; nothing where it has none."""
    if "gram_policy" not in dataset:
        return
    of_image = dataset["fold_of_image"].values
    with building(path, of_image.reshape(-1, of_image.shape[-1])[0], corpus="gram_policy_corpus" in dataset) as build:
        for name, at in build.missing():
            build.write(name, at, dataset[name].values[at])


def _folder(path: Path) -> Path:
    return path.absolute().with_name(f".{path.absolute().name}.policy")


def _make(group: "zarr.Group", labels: dict[str, np.ndarray], fold_of_image: np.ndarray, corpus: bool) -> None:
    import xarray as xr

    for name in LABELS:
        about = COORDINATES[name]
        values = labels[about.twin_of or name]
        variable = xr.Variable((name,), values, {"long_name": about.long_name, "units": about.units})
        add_array(group, name, variable, whole=[name])[...] = values
    for name in POLICY:
        about, dims = ARRAYS[name], dims_of(name, steps=STEP in labels)
        attributes = {"long_name": about.long_name, "units": about.units}
        if name == "fold_of_image":
            shape = [labels[STEP].size if dim == STEP else fold_of_image.size for dim in dims]
            variable = xr.Variable(dims, np.broadcast_to(fold_of_image.astype(np.int64), shape), attributes)
            add_array(group, name, variable, whole=dims)[...] = variable.values
        elif corpus or name != "gram_policy_corpus":
            shape = [labels[dim.removesuffix("_2")].size for dim in dims]
            variable = xr.Variable(dims, np.broadcast_to(np.zeros(()), shape), attributes)
            add_array(group, name, variable, whole=about.dims[2:], compressed=False)
