"""Runs that are done, kept on disk until their seed is complete: a killed job goes on with the next run.

They lie in the store's folder as ``positions``, a Zarr group without arrays that readers of the store pass over, with a
file of tensors for each run.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from analysis.atomic import replacing

FOLDER = "positions"


def begin(path: Path) -> None:
    """Make the folder in the store at ``path``."""
    import zarr

    if not (path / FOLDER / "zarr.json").exists():
        zarr.create_group(path / FOLDER, zarr_format=3)


def file_of(path: Path, seed: int, run: int) -> Path:
    """Of the run at place ``run`` of the seed at place ``seed``."""
    return path / FOLDER / f"{seed:04d}-{run:04d}.safetensors"


def write(path: Path, seed: int, run: int, arrays: Mapping[str, np.ndarray]) -> None:
    """Keep what ``rollout`` gave; there whole or not at all."""
    with replacing(file_of(path, seed, run)) as partial:
        save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, partial)


def read(path: Path, seed: int, run: int, name: str) -> np.ndarray:
    """One array of a kept run."""
    with safe_open(file_of(path, seed, run), framework="np") as opened:
        return opened.get_tensor(name)


def drop(path: Path, seed: int) -> None:
    """Forget the runs of a seed that is complete."""
    for file in (path / FOLDER).glob(f"{seed:04d}-*.safetensors"):
        file.unlink()


def end(path: Path) -> None:
    """Remove the folder: every seed is complete."""
    shutil.rmtree(path / FOLDER, ignore_errors=True)
