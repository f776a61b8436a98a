"""Means over folds, kept from every cell until the last is done; then their inner products across sigma (Eq. 6).

They lie in the store's folder as ``fold_means``, a file of float32 tensors for each sigma, each written before its cell
is done. So a killed sweep goes on where it was, and so does the final pass. After it they are removed.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from safetensors import safe_open
from safetensors.numpy import save_file

from analysis import policy_store
from analysis.atomic import replacing
from analysis.policy.folds import fold_of_images
from analysis.policy.material import FEWEST_UNITS

FOLDER = "fold_means"
AT_ONCE = 2**30  # bytes of fold means that the final pass holds, as read and in float64
BYTES = 4  # of a number in a file

#: Takes the tensors of one cell, by name.
Keep = Callable[[Mapping[str, np.ndarray]], None]


@dataclass(frozen=True)
class Folds:
    """Which means a sweep keeps. of_image: the fold of each image; draws: whether each draw is a fold too."""

    of_image: np.ndarray
    draws: int

    @property
    def units(self) -> int:
        """Means kept of each arm and coordinate."""
        return int(self.of_image.max()) + 1 + self.draws


def folds_of(images: int, draws: int) -> Folds:
    """UsageError for too few images; too few draws for folds of them leave those out."""
    return Folds(fold_of_images(images), draws if draws >= FEWEST_UNITS else 0)


def begin(path: Path) -> None:
    """Make the folder in the store at ``path``: a Zarr group, so that readers of the store pass it over."""
    import zarr

    if not policy_store.is_there(path) and not (path / FOLDER / "zarr.json").exists():
        zarr.create_group(path / FOLDER, zarr_format=3)


def write(path: Path, index: int, tensors: Mapping[str, np.ndarray]) -> None:
    """Keep the means of one cell."""
    with replacing(_file(path, index)) as partial:
        save_file({name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}, partial)


def lacking(path: Path, cells: int) -> list[int]:
    """Cells whose means are not there though they are still needed."""
    return [] if policy_store.is_there(path) else [index for index in range(cells) if not _file(path, index).exists()]


def finish(path: Path, folds: Folds, metrics: Sequence[str], blocks: Sequence[str], cells: int) -> None:
    """The final pass: inner products of all means into the store, then no means any more.

    cells: of one step, where there are several. Goes on with a pass that was stopped, a metric and block at a time. The
    caller holds the store's lock.
    """
    if not policy_store.is_there(path):
        with policy_store.building(path, folds.of_image, corpus=folds.draws > 0) as build:
            for name, at in build.missing():
                *step, metric, block = at
                files = [_file(path, sum(step) * cells + index) for index in range(cells)]
                unit = "images" if name == "gram_policy" else "draws"
                build.write(name, at, product(files, tensor_name(metrics[metric], blocks[block], unit)))
    shutil.rmtree(path / FOLDER, ignore_errors=True)
    policy_store.remove_leftover(path)


def product(
    files: Sequence[Path], name: str, at_once: int = AT_ONCE
) -> Float[np.ndarray, "cells arms units cells arms units"]:
    """Inner products of the tensor ``name`` [arms, units, coordinates] of all cells, in float64.

    Read a run of coordinates at a time, which takes about ``at_once`` bytes.
    """
    with ExitStack() as opened:
        slices = [opened.enter_context(safe_open(file, framework="np")).get_slice(name) for file in files]
        arms, units, coordinates = slices[0].get_shape()
        rows = len(files) * arms * units
        gram = np.zeros((rows, rows))
        width = max(1, at_once // (rows * (BYTES + 8)))
        for start in range(0, coordinates, width):
            stop = min(start + width, coordinates)
            part = np.stack([each[:, :, start:stop] for each in slices]).reshape(rows, -1).astype(np.float64)
            gram += part @ part.T
    shape = (len(files), arms, units)
    return ((gram + gram.T) / 2).reshape(*shape, *shape)


def tensor_name(metric: str, block: str, unit: str) -> str:
    """Of the means over ``unit``, images or draws."""
    return f"{metric}/{block}/{unit}"


def disk(folds: Folds, *, cells: int, arms: int, coordinates: int) -> int:
    """Bytes of all files. coordinates: per sample, over all blocks and metrics."""
    return BYTES * cells * arms * folds.units * coordinates


def _file(path: Path, index: int) -> Path:
    return path / FOLDER / f"{index:04d}.safetensors"
