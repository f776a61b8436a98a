"""Inner products of displacements and the floor of rounding, against plain float64."""

import numpy as np
import pytest

from probes.horizon.displacement import cell, rounding_of
from probes.horizon.rollout import START, TREATED


def test_the_floor_is_the_mean_squared_distance_of_two_rounding_errors() -> None:
    """Each error is that of a float64 number at a random place, rounded to float32."""
    rng = np.random.default_rng(0)
    numbers = np.exp(rng.uniform(-6.0, 6.0, (2, 200_000))) * rng.choice([-1, 1], 200_000)
    numbers[1] = numbers[0] * (1.0 + 1e-5 * rng.standard_normal(200_000))  # another number with the same spacing
    errors = numbers.astype(np.float32).astype(np.float64) - numbers
    assert rounding_of(numbers[0].astype(np.float32)) == pytest.approx(((errors[0] - errors[1]) ** 2).sum(), rel=0.02)


def test_the_arrays_of_a_seed_are_those_of_the_runs() -> None:
    rng = np.random.default_rng(1)
    start = {"a": rng.standard_normal(5).astype(np.float32), "b": rng.standard_normal(3).astype(np.float32)}
    ends = {
        (run, step, block): (start[block] + rng.standard_normal(start[block].shape)).astype(np.float32)
        for run in range(3)
        for step in (1, 4)
        for block in "ab"
    }
    kept = {(0, f"{START}/{block}"): values for block, values in start.items()}
    kept |= {(run, f"{step}/{block}"): values for (run, step, block), values in ends.items()}
    kept[2, TREATED] = np.array([0, 3])
    found = cell(lambda run, name: kept[run, name], 3, ["a", "b"], [1, 4], 2)
    for s, step in enumerate((1, 4)):
        for b, block in enumerate("ab"):
            moved = [ends[run, step, block].astype(float) for run in range(3)]
            arms = [moved[0] - start[block], moved[1] - moved[0], moved[2] - moved[0]]
            assert found["gram"][s, b] == pytest.approx(np.array([[x @ y for y in arms] for x in arms]))
            assert found["rounding"][s, b] == rounding_of(ends[0, step, block])
    assert found["treated"].tolist() == [0, 3]
