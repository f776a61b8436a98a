"""What a sweep costs, in one run on the mini model: `python benchmarks/probe.py [--repeats 5]`.

- the sweep's cell (native arm alone, so that both do the same samples) against plain batched forward and backward
  passes of those samples at their best batch size: a plain pass gives no per-sample gradient at all;
- the share of a cell's time that goes into metrics and Grams;
- peak memory of the process.
"""

import argparse
import resource
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from probes.cli import DEFAULT_ARMS
from probes.grad import Settings, prepare, resolve_arms
from probes.room import Room
from probes.sweep import Sweep, cell
from train import determinism
from train.arms import NATIVE_ARM
from train.batch import stacked
from train.step import Source, step_input, step_loss

SIGMA = 0.6
BATCHES = (4, 8, 12, 24, 48)
IN_MEMORY = Room(0, 0, 0, in_memory=True, cross=True, folder=Path())


def seconds(call: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = perf_counter()
    call()
    return perf_counter() - started


def plain_passes(sweep: Sweep, source: Source, batch: int) -> None:
    """Forward and backward of every native sample, in batches, for the gradient of the mean loss."""
    transformer = sweep.measure.transformer  # pyright: ignore[reportFunctionMemberAccess]
    trainable = [p for name, p in transformer.named_parameters() if name in sweep.point.parameters]
    steps = [step_input(NATIVE_ARM.plan(SIGMA), s, SIGMA, source) for s in sweep.samples(sweep.images)]
    for start in range(0, len(steps), batch):
        given = stacked(steps[start : start + batch])
        torch.autograd.grad(step_loss(transformer, source.family, given).mean(), trainable)


def gradients_alone(sweep: Sweep) -> None:
    """The measuring of a cell without metrics and Grams."""
    for group in sweep.groups():
        for arm in sweep.arms:
            sweep.measure(arm, SIGMA, sweep.samples([sweep.images[i] for i in group]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    determinism.strict()
    settings = Settings(
        sigma_grid="0.6", arms=tuple(DEFAULT_ARMS), images=24, draws=4, metrics=("raw",), engine="func", chunk=24,
        attention="sdpa", model="mini", latents=None, adapter=None, rank=4, seed=0,
        jobs=None, threads=None, memory=4.0,
    )  # fmt: skip
    sweep, source, _ = prepare(settings, (SIGMA,), resolve_arms(settings.arms))
    native = replace(sweep, arms=(NATIVE_ARM,))
    plain_passes(native, source, 24)
    gradients_alone(native)

    by_batch = {
        batch: min(seconds(lambda b=batch: plain_passes(native, source, b)) for _ in range(2)) for batch in BATCHES
    }
    best = min(by_batch, key=lambda batch: by_batch[batch])
    print("plain passes, seconds by batch: " + ", ".join(f"{b}: {s:.2f}" for b, s in by_batch.items()))
    ratios, shares = [], []
    for _ in range(repeats):
        plain = seconds(lambda: plain_passes(native, source, best))
        ratios.append(seconds(lambda: cell(native, IN_MEMORY, SIGMA, lambda _: None)) / plain)
        whole, alone = (
            seconds(lambda: cell(sweep, IN_MEMORY, SIGMA, lambda _: None)),
            seconds(lambda: gradients_alone(sweep)),
        )
        shares.append(1 - alone / whole)
    samples = len(sweep.arms) * len(sweep.images) * sweep.draws
    print(f"sweep against plain passes at batch {best}: {shown(ratios, '{:.3f}')} times ({repeats} pairs; goal 1.15)")
    print(f"share in metrics and Grams, {len(sweep.arms)} arms: {shown(shares, '{:.1%}')} ({repeats} pairs; goal 10 %)")
    print(f"rate of a whole cell: {samples / whole:.1f} gradients/s with {torch.get_num_threads()} threads")
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")


def shown(values: list[float], form: str) -> str:
    """Median and range."""
    low, high = form.format(min(values)), form.format(max(values))
    return f"{form.format(statistics.median(values))} ({low} to {high})"


if __name__ == "__main__":
    main()
