"""Displacements in rank space against dense matrices: `python benchmarks/rank_space.py [--size 3072] [--rank 16]`.

One pair of runs of one module, both ways in float64, on one thread and in turns: the dense way forms both
displacements, size x size, and multiplies them cell by cell; Eq. 15 of docs/method.md multiplies the factors. Reported:
processor seconds of a call of one over those of the other, and how far the two results differ.
"""

import argparse
import os
import statistics
from collections.abc import Callable
from time import process_time

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy starts

import numpy as np

from analysis.base.rank_space import inner_products


def dense(ups: list[np.ndarray], downs: list[np.ndarray], scales: np.ndarray) -> np.ndarray:
    """All inner products [runs, runs] of displacements formed as matrices."""
    whole = [(scale * (up @ down)).ravel() for up, down, scale in zip(ups, downs, scales, strict=True)]
    return np.array([[a @ b for b in whole] for a in whole])


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
    ups = [random.standard_normal((asked.size, asked.rank)) for _ in range(2)]
    downs = [random.standard_normal((asked.rank, asked.size)) for _ in range(2)]
    scales = np.array([1.0, 0.5])
    slow, fast = dense(ups, downs, scales), inner_products(ups, downs, scales)  # also warms both ways up
    times = [
        (seconds(lambda: dense(ups, downs, scales), 1), seconds(lambda: inner_products(ups, downs, scales), 50))
        for _ in range(asked.repeats)
    ]
    norms = np.sqrt(np.diagonal(slow))
    apart = float((np.abs(slow - fast) / np.outer(norms, norms)).max())
    print(f"dense over rank space, {asked.size} x {asked.size}, rank {asked.rank}, one pair:")
    best, median = (
        take([each[0] for each in times]) / take([each[1] for each in times]) for take in (min, statistics.median)
    )
    print(f"  {best:.0f} times, fastest calls ({median:.0f}, medians of {asked.repeats}; goal 300); apart {apart:.1e}")


if __name__ == "__main__":
    main()
