"""Throughput of `analysis diff` against `cmp`: `python benchmarks/diff.py [--gigabytes 2] [--repeats 5]`.

Two equal safetensors files of bfloat16 blocks, made in a temporary folder and removed. Both commands run in turns, as
processes, start-up included, and read from the page cache where it holds both files. Beside it: the comparison alone,
without starting Python; a pair in which every element differs, where values are read too; peak memory of the command.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

from analysis.file_pairs import compared

COMMAND = [sys.executable, "-c", "from analysis.cli import main; main()", "diff"]
BLOCK = 32 * 2**20
"""Bytes of a tensor."""


def write(path: Path, size: int, *, add: int = 0) -> int:
    """Random bfloat16 tensors of ``size`` bytes in all, ``add`` to each bit pattern. The file's size."""
    names = [f"transformer_blocks.{index}.attn.to_q.weight" for index in range(max(1, size // BLOCK))]
    header = {
        name: {"dtype": "BF16", "shape": [BLOCK // 2], "data_offsets": [index * BLOCK, (index + 1) * BLOCK]}
        for index, name in enumerate(names)
    }
    text = json.dumps(header).encode()
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in names:
            file.write((random.integers(0x3000, 0x4000, BLOCK // 2, dtype=np.uint16) + np.uint16(add)).data)
    return path.stat().st_size


def seconds(call: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = perf_counter()
    call()
    return perf_counter() - started


def run(command: list[str], code: int) -> None:
    """Run a command that must end with ``code``."""
    done = subprocess.run(command, stdout=subprocess.DEVNULL)
    if done.returncode != code:
        raise SystemExit(f"{command} ended with {done.returncode}")


def shown(values: list[float], form: str) -> str:
    """Median and range."""
    low, high = form.format(min(values)), form.format(max(values))
    return f"{form.format(statistics.median(values))} ({low} to {high})"


def measure(folder: Path, gigabytes: float, repeats: int) -> None:
    """Make the files, time, print."""
    a, b, other = (folder / f"{name}.safetensors" for name in ("a", "b", "other"))
    size = write(a, int(gigabytes * 1e9))
    write(b, int(gigabytes * 1e9))
    write(other, BLOCK * 4, add=1)
    write(folder / "small.safetensors", BLOCK * 4)
    ways: dict[str, Callable[[], object]] = {
        "cmp": lambda: run(["cmp", str(a), str(b)], 0),
        "analysis diff": lambda: run([*COMMAND, str(a), str(b)], 0),
        "comparison alone": lambda: compared(a, b),
    }
    for way in ways.values():  # the page cache is as warm as it gets
        way()
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            times[name].append(seconds(way))
    for name, taken in times.items():
        print(f"{name + ':':<18} {shown([size / 1e9 / each for each in taken], '{:.2f}')} GB/s of each file")
    for name in ("analysis diff", "comparison alone"):
        ratios = [cmp / taken for cmp, taken in zip(times["cmp"], times[name], strict=True)]
        print(f"throughput of {name} over cmp: {shown(ratios, '{:.2f}')} times ({repeats} pairs; goal 0.7)")
    slow = seconds(lambda: compared(other, folder / "small.safetensors"))
    print(f"every element differs: {BLOCK * 4 / 1e9 / slow:.2f} GB/s")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10
    print(f"peak memory of the largest command: {peak:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of each file")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    if shutil.which("cmp") is None:
        raise SystemExit("cmp is not installed: it comes with diffutils")
    with tempfile.TemporaryDirectory() as folder:
        free = shutil.disk_usage(folder).free
        if free < 2.5e9 * asked.gigabytes:
            raise SystemExit(f"{folder} has {free / 1e9:.1f} GB free: give fewer --gigabytes, or another TMPDIR")
        measure(Path(folder), asked.gigabytes, asked.repeats)


if __name__ == "__main__":
    main()
