"""Inner products of adapter displacements from their low-rank factors, without any matrix of a module's size.

A displacement is s U D with U up [out, rank] and D down [rank, in]. Of a pair, Eq. 15 of docs/method.md,

    <dW_a, dW_b> = s_a s_b sum of (U_a^T U_b) o (D_a D_b^T),

needs (out + in) x rank_a x rank_b multiplications, where the dense product needs out x in x rank for each side.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float64


def inner_products(
    ups: Sequence[Float[np.ndarray, "out _"]],
    downs: Sequence[Float[np.ndarray, "_ in"]],
    scales: Float64[np.ndarray, " runs"],
) -> Float64[np.ndarray, "runs runs"]:
    """Eq. 15 for every pair of runs of one module, in float64 and exactly symmetric.

    The runs' ranks may differ, and may be 0 (no displacement). All factors stand side by side, so there is one product
    of ups, one of downs, and a sum over each pair's own cells.
    """
    ranks = [up.shape[1] for up in ups]
    # One stack at a time: with both of them alive the allocator fetches fresh memory in every call, 4 times as slow.
    cells = gram(np.concatenate(ups, 1, dtype=np.float64).T) * gram(np.concatenate(downs, 0, dtype=np.float64))
    own = np.repeat(np.eye(len(ranks)), ranks, axis=0)  # [all ranks, runs]: which run a column of `up` belongs to
    products = own.T @ cells @ own * np.outer(scales, scales)
    return 0.5 * (products + products.T)


def gram(rows: Float64[np.ndarray, "n length"]) -> Float64[np.ndarray, "n n"]:
    """Inner products of all rows, exactly symmetric."""
    return rows @ rows.T
