"""Displacements in rank space against dense matrices: `python benchmarks/rank_space.py [--size 3072] [--rank 16]`.

One pair of runs of one module, all four inner products, in float64, on one thread and in turns. The dense ways form
both displacements, size x size, and multiply them cell by cell: plainly, as the tests do, and by BLAS, which needs no
further matrix. Eq. 15 of docs/method.md multiplies the factors. Reported: processor seconds of a call of either over
those of Eq. 15, and how far the results differ.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy starts

import numpy as np

from analysis.base.rank_space import inner_products


def displacements(ups: list[np.ndarray], downs: list[np.ndarray], scales: np.ndarray) -> list[np.ndarray]:
    """Each run's matrix."""
    return [scale * (up @ down) for up, down, scale in zip(ups, downs, scales, strict=True)]


def plain(ups: list[np.ndarray], downs: list[np.ndarray], scales: np.ndarray) -> np.ndarray:
    """[runs, runs]."""
    whole = displacements(ups, downs, scales)
    return np.array([[(a * b).sum() for b in whole] for a in whole])


def by_blas(ups: list[np.ndarray], downs: list[np.ndarray], scales: np.ndarray) -> np.ndarray:
    """[runs, runs]."""
    whole = displacements(ups, downs, scales)
    return np.array([[np.vdot(a, b) for b in whole] for a in whole])


def seconds(call: Callable[[], object], calls: int) -> float:
    """Processor time of one call, as the mean of several."""
    started = process_time()
    for _ in range(calls):
        call()
    return (process_time() - started) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=3072, help="height and width of the module")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    random = np.random.default_rng(0)
    factors = (
        [random.standard_normal((asked.size, asked.rank)) for _ in range(2)],
        [random.standard_normal((asked.rank, asked.size)) for _ in range(2)],
        np.array([1.0, 0.5]),
    )
    ways = {"plain": (plain, 1), "by BLAS": (by_blas, 1), "rank space": (inner_products, 10)}
    found = {name: way(*factors) for name, (way, _) in ways.items()}  # also warms every way up
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.repeats):
        for name, (way, calls) in ways.items():
            times[name].append(seconds(lambda way=way: way(*factors), calls))
    norms = np.sqrt(np.diagonal(found["plain"]))
    apart = float((np.abs(found["plain"] - found["rank space"]) / np.outer(norms, norms)).max())
    print(f"dense over rank space, {asked.size} x {asked.size}, rank {asked.rank}, one pair; apart {apart:.1e}")
    for name, goal in (("plain", "; goal 300"), ("by BLAS", "")):
        best, median = (take(times[name]) / take(times["rank space"]) for take in (min, statistics.median))
        print(
            f"  dense {name + ':':<9} {best:.0f} times, fastest calls ({median:.0f}, medians of {asked.repeats}{goal})"
        )


if __name__ == "__main__":
    main()
