"""Separation and non-linearity from a Gram of displacements: Eq. 13 and 14 of docs/method.md.

The first arm of a Gram is the baseline's displacement from the start, D = theta_k(0) - theta_0; the others are
displacements from the baseline, d(a) = theta_k(a) - theta_k(0).
"""

import numpy as np
from jaxtyping import Float

RESOLUTION = 1e-8
"""Of a non-linearity: squares are subtracted in float64, so smaller ones read as this much at most."""
Gram = Float[np.ndarray, "*cells arm arm"]
Squares = Float[np.ndarray, "*cells arm"]


def squared_distances(gram: Gram) -> Squares:
    """|d(a)|^2 of every arm; of the first |D|^2."""
    return np.diagonal(gram, axis1=-2, axis2=-1)


def separation(gram: Gram) -> Squares:
    """Eq. 13: |d(a)| / |D| for every arm, 1 for the baseline itself; NaN where the baseline has not moved."""
    squares = squared_distances(gram)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(squares[..., :1] > 0, np.sqrt(squares / squares[..., :1]), np.nan)


def nonlinearity(gram: Gram, whole: int, half: int) -> Float[np.ndarray, "*cells"]:
    """Eq. 14: |d(a) - 2 d(a/2)| / |d(a)|, with the positions of the arms a and a/2; NaN where d(a) is 0."""
    square = gram[..., whole, whole]
    bent = square - 4 * gram[..., whole, half] + 4 * gram[..., half, half]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(square > 0, np.maximum(np.sqrt(np.maximum(bent, 0) / square), RESOLUTION), np.nan)


def of_rounding(square: np.ndarray, rounding: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The non-linearity that rounding alone makes in k steps (Eq. 14a): sqrt(3 k rounding / |d(a)|^2).

    square: |d(a)|^2; rounding: squared floor of the distance of two runs after one step; steps: k; of shapes that
    broadcast. d(a) - 2 d(a/2) holds three positions, once, twice and once: six halves of that square.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(square > 0, np.sqrt(3.0 * steps * rounding / square), np.nan)


def length_ratio(gram: Gram, whole: int, half: int) -> Float[np.ndarray, "*cells"]:
    """|d(a)| / 2 |d(a/2)|: 1 while separation measures dose, 1/2 once it has saturated; NaN where d(a/2) is 0."""
    square, of_half = gram[..., whole, whole], gram[..., half, half]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(of_half > 0, np.sqrt(square / (4 * of_half)), np.nan)
