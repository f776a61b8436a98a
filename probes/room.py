"""Where a cell keeps its gradients: memory up to a bound, scratch files beyond it.

The scratch files lie beside the store, have no name, and are gone when the process is, however it ends.
"""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.errors import UsageError

FLOAT64 = 8  # bytes
GIB = 2**30


@dataclass(frozen=True)
class Room:
    """What a cell of this size takes, and where it goes. All in bytes."""

    means: int  # image means: [arms, images, coordinates], and what is kept for policies
    draws: int  # every draw: [arms, images, draws, coordinates], for Eq. 5b
    working: int  # one group of images in hand, with the engine's float32 gradients
    in_memory: bool
    cross: bool  # whether every draw is kept
    folder: Path

    def allocate(self, shape: tuple[int, ...]) -> np.ndarray:
        """A zero-filled float64 array of ``shape``."""
        if self.in_memory:
            return np.zeros(shape)
        with tempfile.TemporaryFile(dir=self.folder, prefix=".scratch-") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, int(np.prod(shape)) * FLOAT64))
            return np.memmap(file, dtype=np.float64, mode="r+", shape=shape)


def plan_room(
    *, arms: int, images: int, draws: int, group: int, coordinates: int, memory: int, folder: Path, kept: int = 0
) -> Room:
    """Decide where a cell goes. coordinates: per sample, over all blocks and metrics; memory: bound in bytes.

    kept: means over folds of each arm and coordinate, for policies.
    Raises UsageError when not even the image means fit.
    """
    every = arms * images * draws * coordinates * FLOAT64
    means = arms * (images + 2 * kept) * coordinates * FLOAT64
    working = arms * group * draws * coordinates * (FLOAT64 + FLOAT64 // 2)
    if means + every + working <= memory:
        return Room(means, every, working, in_memory=True, cross=True, folder=folder)
    free = shutil.disk_usage(folder).free
    if means + every <= 0.9 * free:
        return Room(means, every, working, in_memory=False, cross=True, folder=folder)
    if means + working <= memory:
        return Room(means, every, working, in_memory=True, cross=False, folder=folder)
    if means <= 0.9 * free:
        return Room(means, every, working, in_memory=False, cross=False, folder=folder)
    raise UsageError(
        f"image means take {means / GIB:.1f} GiB, more than --memory {memory / GIB:.1f} and the "
        f"{free / GIB:.1f} GiB free at {folder}; give fewer images or arms, a lower rank, or more of either"
    )
