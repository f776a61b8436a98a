"""Metrics: linear maps from per-sample gradients to the coordinates whose dot products are compared.

``raw`` takes the gradient as it is. ``adam`` divides it, element by element, as the optimiser of a training state does
(Eq. 6a of docs/method.md). ``weight`` is the step in weight space of LoRA modules, d(dW) = s (dB A + B dA), in
rank-space coordinates (Eq. 6w): no out x in matrix is ever formed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from analysis.errors import UsageError

DOWN, UP = ".lora_A.", ".lora_B."
Array = np.ndarray
Coordinates = Float[np.ndarray, "samples coordinates"]


@dataclass(frozen=True)
class Point:
    """Where the gradient is taken: parameters by name (float64) and the adapter's scale alpha / rank.

    denominators: sqrt(v_hat) + eps of a training state by the same names, for ``adam`` alone.
    """

    parameters: Mapping[str, Array]
    scale: float = 1.0
    denominators: Mapping[str, Array] = field(default_factory=dict)


#: (point, gradients by name [n, *shape] in float64) -> coordinates by name of a parameter or module.
Metric = Callable[[Point, Mapping[str, Array]], dict[str, Coordinates]]


def raw(point: Point, gradients: Mapping[str, Array]) -> dict[str, Coordinates]:
    """The gradient itself, parameter by parameter."""
    return {name: gradient.reshape(len(gradient), -1) for name, gradient in gradients.items()}


def adam(point: Point, gradients: Mapping[str, Array]) -> dict[str, Coordinates]:
    """Each element over sqrt(v_hat) + eps of a training state, which stays as it is (Eq. 6a)."""
    strays = [name for name in gradients if name not in point.denominators]
    if strays:
        raise UsageError(f"metric adam: no second moments of {strays[0]}; give a Point their denominators")
    return raw(point, {name: gradient / point.denominators[name] for name, gradient in gradients.items()})


def weight(point: Point, gradients: Mapping[str, Array]) -> dict[str, Coordinates]:
    """LoRA modules in weight space; every parameter must belong to one."""
    strays = [name for name in gradients if DOWN not in name and UP not in name]
    if strays:
        raise UsageError(f"metric weight: {strays[0]} is no LoRA factor; use metric raw for other parameters")
    downs = [name for name in gradients if DOWN in name]
    return {
        down: lora_coordinates(
            point.parameters[down],
            point.parameters[down.replace(DOWN, UP)],
            point.scale,
            gradients[down],
            gradients[down.replace(DOWN, UP)],
        )
        for down in downs
    }


def lora_coordinates(
    down: Float[Array, "rank inputs"],
    up: Float[Array, "outputs rank"],
    scale: float,
    d_down: Float[Array, "samples rank inputs"],
    d_up: Float[Array, "samples outputs rank"],
) -> Coordinates:
    """Coordinates of scale (dB A + B dA) with exactly its Frobenius inner products.

    With reduced QR A^T = Q_A R_A and B = Q_B R_B, C1 = s (dB R_A^T + B (dA Q_A)) lies along the rows
    of A and C2 = s R_B (dA - (dA Q_A) Q_A^T) across them, so the two parts are orthogonal.
    """
    q_a, r_a = np.linalg.qr(down.T)
    r_b = np.linalg.qr(up, mode="r")
    along = d_down @ q_a
    c1 = scale * (d_up @ r_a.T + up @ along)
    c2 = scale * (r_b @ (d_down - along @ q_a.T))
    n = len(d_down)
    return np.concatenate([c1.reshape(n, -1), c2.reshape(n, -1)], axis=1)


METRICS: dict[str, Metric] = {"raw": raw, "weight": weight, "adam": adam}


def metric(name: str) -> Metric:
    """The metric called ``name``."""
    if name not in METRICS:
        raise UsageError(f"metric {name}: unknown; take {', '.join(METRICS)}")
    return METRICS[name]
