"""A horizon store whose separation, non-linearity and growth are planted.

    data = horizon_store(seeds=[0, 1], steps=[1, 2, 4, 8], bend=0.01, rate=0.1)

In each block the baseline moves ``0.1 k``, a dose a moves ``0.01 a`` along one direction and a little across it, such
that NL_k(a) = a b / sqrt(1 + (2 a b)^2) with b = ``bend`` k, and jitters lie ``1e-5 exp(rate k)`` away.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import xarray as xr

from analysis.horizon.schema import template

PARAMETERS, DIRECTIONS = 60, 30
DOSES = {"1/4": 0.25, "1/2": 0.5, "1": 1.0}


def horizon_store(
    *,
    seeds: Sequence[int] = (0, 1, 2),
    steps: Sequence[int] = (1, 2, 4, 8, 16, 32),
    blocks: Sequence[str] = ("block_0", "block_1"),
    bend: float = 0.01,
    rate: float = 0.1,
    jitters: int = 8,
) -> xr.Dataset:
    """Doses 1/4, 1/2 and 1, every seed done; the seeds differ in their directions alone."""
    assert all(b == 2 * a for a, b in pairwise(DOSES.values()))
    names = [f"jitter {i}" for i in range(1, jitters + 1)]
    dataset = template(seeds, steps, blocks, DOSES, names, {"treatment": "planted", "start": "warm"})
    generator = np.random.default_rng(0)
    for place in range(len(seeds)):
        for s, step in enumerate(steps):
            for b in range(len(blocks)):
                basis = np.linalg.qr(generator.standard_normal((PARAMETERS, DIRECTIONS)))[0].T
                moved = np.stack(displacements(basis, step, bend, rate, jitters))
                dataset["gram"].values[place, s, b] = moved @ moved.T
        dataset["rounding"].values[place] = 1e-18
        dataset["treated"].values[place] = steps
        dataset["done"].values[place] = True
    return dataset


def displacements(basis: np.ndarray, step: int, bend: float, rate: float, jitters: int) -> list[np.ndarray]:
    """The baseline's from the start, then every run's from the baseline."""
    forward, along, across, *others = basis
    # d(a) = 0.01 (a along + 2 b a^2 across), so d(a) - 2 d(a/2) = 0.01 b a^2 across.
    doses = [0.01 * (dose * along + 2 * bend * step * dose**2 * across) for dose in DOSES.values()]
    return [0.1 * step * forward, *doses, *(1e-5 * np.exp(rate * step) * others[j] for j in range(jitters))]
