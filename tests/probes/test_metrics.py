import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import UsageError
from probes.metrics import Point, lora_coordinates, metric, raw


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.booleans(), st.booleans(), st.integers(0, 2**31))
def test_weight_products_are_those_of_the_dense_step(rank, inputs, outputs, fresh, degenerate, seed):
    """Against d(dW) = s (dB A + B dA) written out, also where rank exceeds a side, B = 0 or A loses rank."""
    rng = np.random.default_rng(seed)
    down, up, scale = rng.normal(size=(rank, inputs)), rng.normal(size=(outputs, rank)), 0.5
    up = up * (not fresh)
    if degenerate:
        down[-1] = down[0]
    d_down, d_up = rng.normal(size=(4, rank, inputs)), rng.normal(size=(4, outputs, rank))
    dense = np.array([scale * (d_up[i] @ down + up @ d_down[i]) for i in range(4)])
    expected = np.array([[np.sum(x * y) for y in dense] for x in dense])
    found = lora_coordinates(down, up, scale, d_down, d_up)
    assert found @ found.T == pytest.approx(expected, rel=1e-12, abs=1e-12 * max(1, np.trace(expected)))


def test_raw_keeps_the_products_of_the_gradients():
    rng = np.random.default_rng(0)
    gradients = {"a": rng.normal(size=(3, 2, 5)), "b": rng.normal(size=(3, 7))}
    coordinates = raw(Point({}), gradients)
    for name, gradient in gradients.items():
        for i in range(3):
            for j in range(3):
                assert coordinates[name][i] @ coordinates[name][j] == pytest.approx(np.sum(gradient[i] * gradient[j]))


def test_weight_pairs_the_factors_by_module():
    rng = np.random.default_rng(1)
    point = Point({"m.lora_A.w": rng.normal(size=(2, 3)), "m.lora_B.w": rng.normal(size=(4, 2))}, scale=2.0)
    gradients = {"m.lora_A.w": rng.normal(size=(5, 2, 3)), "m.lora_B.w": rng.normal(size=(5, 4, 2))}
    found = metric("weight")(point, gradients)
    assert {name: value.shape for name, value in found.items()} == {"m.lora_A.w": (5, 4 * 2 + 2 * 3)}


def test_bad_metrics_are_named():
    with pytest.raises(UsageError, match="metric adams: unknown; take raw, weight, adam"):
        metric("adams")
    with pytest.raises(UsageError, match="bias is no LoRA factor"):
        metric("weight")(Point({}), {"bias": np.zeros((2, 3))})
