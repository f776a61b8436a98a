"""Inner products in rank space against dense matrices in float64."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from analysis.base.rank_space import inner_products

SEEDS = st.integers(0, 2**32 - 1)
RANKS = st.lists(st.integers(0, 5), min_size=1, max_size=4)


def factors(random: np.random.Generator, ranks: list[int], height: int, width: int):
    """Random ups [height, rank], downs [rank, width] and scales."""
    ups = [random.standard_normal((height, rank)) for rank in ranks]
    downs = [random.standard_normal((rank, width)) for rank in ranks]
    return ups, downs, random.uniform(0.25, 4.0, len(ranks))


def dense(ups: list[np.ndarray], downs: list[np.ndarray], scales: np.ndarray) -> np.ndarray:
    """The slow twin: every displacement as a matrix [out, in], float64."""
    whole = [
        scale * (up.astype(np.float64) @ down.astype(np.float64))
        for up, down, scale in zip(ups, downs, scales, strict=True)
    ]
    return np.array([[float((a * b).sum()) for b in whole] for a in whole])


def assert_close(found: np.ndarray, expected: np.ndarray, relative: float = 1e-12) -> None:
    """Within ``relative`` of the product of the pair's norms."""
    norms = np.sqrt(np.diagonal(expected))
    assert (np.abs(found - expected) <= relative * np.outer(norms, norms)).all()


@given(seed=SEEDS, ranks=RANKS, height=st.integers(1, 9), width=st.integers(1, 9))
def test_equal_the_dense_ones_and_exactly_symmetric(seed: int, ranks: list[int], height: int, width: int) -> None:
    ups, downs, scales = factors(np.random.default_rng(seed), ranks, height, width)
    found = inner_products(ups, downs, scales)
    assert_close(found, dense(ups, downs, scales))
    assert (found == found.T).all()


def test_float32_factors_are_multiplied_in_float64() -> None:
    ups, downs, scales = factors(np.random.default_rng(1), [16, 4], 300, 200)
    ups, downs = [up.astype(np.float32) for up in ups], [down.astype(np.float32) for down in downs]
    assert_close(inner_products(ups, downs, scales), dense(ups, downs, scales))


@given(seed=SEEDS, ranks=st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_a_change_of_basis_changes_nothing(seed: int, ranks: list[int]) -> None:
    random = np.random.default_rng(seed)
    ups, downs, scales = factors(random, ranks, 12, 10)
    bases = [np.linalg.qr(random.standard_normal((r, r)))[0] @ np.diag(random.uniform(0.5, 2.0, r)) for r in ranks]
    turned = inner_products(
        [up @ g for up, g in zip(ups, bases, strict=True)],
        [np.linalg.solve(g, down) for g, down in zip(bases, downs, strict=True)],
        scales,
    )
    assert_close(turned, inner_products(ups, downs, scales))


def test_blocks_sum_to_the_whole() -> None:
    """Modules' inner products add up to that of all displacements side by side."""
    random = np.random.default_rng(2)
    modules = [factors(random, [3, 2, 4], height, width)[:2] for height, width in ((8, 6), (5, 7), (4, 4))]
    scales = np.array([0.5, 2.0, 1.0])
    flat = np.array(
        [
            np.concatenate([scale * (ups[run] @ downs[run]).ravel() for ups, downs in modules])
            for run, scale in enumerate(scales)
        ]
    )
    assert_close(sum(inner_products(ups, downs, scales) for ups, downs in modules), flat @ flat.T)


def test_a_run_of_rank_0_has_no_displacement() -> None:
    ups, downs, scales = factors(np.random.default_rng(3), [0, 2, 0], 4, 5)
    found = inner_products(ups, downs, scales)
    assert found[1, 1] > 0
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    assert found[:, 2].tolist() == [0.0, 0.0, 0.0]
