"""Inner products of what the runs of one seed did, block by block: the arrays of a cell (Eq. 13).

A run is read a block at a time, so that no more than one block of every run is in memory.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from probes.horizon.rollout import START, TREATED

Array = np.ndarray
#: (place of a run, name of an array as ``rollout`` gives it) -> the array.
Read = Callable[[int, str], Array]


def cell(read: Read, runs: int, blocks: Sequence[str], steps: Sequence[int], treated_run: int) -> dict[str, Array]:
    """gram [step, block, arm, arm], rounding [step, block] and treated [step] of one seed. Run 0 is the baseline.

    treated_run: the place of a run that has the treatment, which says what was treated.
    """
    gram = np.zeros((len(steps), len(blocks), runs, runs))
    rounding = np.zeros(gram.shape[:2])
    for b, block in enumerate(blocks):
        start = read(0, f"{START}/{block}").astype(np.float64)
        for s, step in enumerate(steps):
            positions = [read(run, f"{step}/{block}") for run in range(runs)]
            gram[s, b] = displacement_gram(start, np.stack([each.astype(np.float64) for each in positions]))
            rounding[s, b] = rounding_of(positions[0])
    return {"gram": gram, "rounding": rounding, "treated": read(treated_run, TREATED)}


def displacement_gram(
    start: Float[Array, " coordinates"], positions: Float[Array, "arm coordinates"]
) -> Float[Array, "arm arm"]:
    """Of the baseline from the start, and of every other run from the baseline; equal triangles to the bit."""
    moved = positions - positions[:1]
    moved[0] = positions[0] - start
    gram = moved @ moved.T
    return (gram + gram.T) / 2


def rounding_of(position: Float[Array, " coordinates"]) -> float:
    """Expected squared distance of two roundings to the dtype of ``position``: each is uniform in half a spacing."""
    spacing = np.spacing(np.abs(position)).astype(np.float64)
    return float((spacing**2).sum() / 6)
