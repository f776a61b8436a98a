"""Whether arrays can be Gram matrices, as every store that holds inner products must keep them."""

import numpy as np
from jaxtyping import Float

SYMMETRY = 1e-9
"""Largest |K_ij - K_ji| / sqrt(K_ii K_jj) that rounding explains."""


def is_gram(gram: Float[np.ndarray, "*cells n n"]) -> bool:
    """Whether each matrix is finite, symmetric to rounding, and has a diagonal of squares."""
    squares = np.diagonal(gram, axis1=-2, axis2=-1)
    if not np.isfinite(gram).all() or (squares < 0).any():
        return False
    norms = np.sqrt(squares)
    allowed = SYMMETRY * norms[..., :, None] * norms[..., None, :]
    return bool((np.abs(gram - gram.swapaxes(-1, -2)) <= allowed).all())
