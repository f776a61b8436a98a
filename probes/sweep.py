"""The sweep: every sigma of a grid (at every checkpoint), every arm, image and draw, into a store, cell by cell.

Read the job here: plan the room, make or resume the store, and for each missing cell measure, reduce
to Grams, write. Cells are independent, so a killed sweep resumes with what is missing and ends with
the same bytes (but for ``seconds``).
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from analysis import schema, store
from analysis.errors import UsageError
from analysis.policy.folds import fold_means
from analysis.provenance import Provenance, differences
from analysis.sequential import Stopping
from probes import folds
from probes.accumulate import Axes, Cell, with_missing
from probes.folds import Folds, Keep
from probes.gradients import Gradients
from probes.metrics import Metric, Point
from probes.room import Room
from train.plan import Sample

if TYPE_CHECKING:
    import xarray as xr

Array = np.ndarray
#: (arm, sigma, samples) -> losses [B] and gradients by name [B, ...], in the samples' order.
Measure = Callable[[Any, float, Sequence[Sample]], Gradients]


class SweptArm(Protocol):
    """What a sweep asks of an arm: its name, and what it does at a sigma. Arms with equal plans are measured once."""

    @property
    def text(self) -> str: ...

    def plan(self, sigma: float) -> Hashable: ...


@dataclass(frozen=True)
class Sweep:
    """Everything a sweep computes with; the arms begin with ``native``.

    group: images measured together; block_of: parameter name -> block; blocks: in depth order. steps: of several
    checkpoints; go_to: position of one of them -> its point, at which is measured from then on. stopping: when a cell
    ends before its last image.
    """

    measure: Measure
    arms: tuple[SweptArm, ...]
    sigmas: tuple[float, ...]
    images: tuple[str, ...]
    draws: int
    metrics: Mapping[str, Metric]
    point: Point
    block_of: Callable[[str], str]
    blocks: tuple[str, ...]
    group: int
    folds: Folds | None = None  # whose means are kept, for policies
    steps: tuple[int, ...] = ()
    go_to: Callable[[int], Point] | None = None
    stopping: Stopping | None = None

    @property
    def cells(self) -> int:
        """How many there are: a sigma each, or a sigma of one step."""
        return len(self.sigmas) * max(1, len(self.steps))

    def at(self, index: int) -> tuple["Sweep", float]:
        """The sweep at the checkpoint of a cell, and the cell's sigma. Only the last that was asked for is measured."""
        step, sigma = divmod(index, len(self.sigmas))
        here = replace(self, point=self.go_to(step)) if self.steps and self.go_to is not None else self
        return here, self.sigmas[sigma]

    def samples(self, images: Sequence[str]) -> list[Sample]:
        """The samples of ``images``, draw after draw."""
        return [Sample(image, draw) for image in images for draw in range(self.draws)]

    def groups(self) -> Iterator[range]:
        """Positions of the images that are measured together; none of these groups goes on beyond a look."""
        counts = (len(self.images),) if self.stopping is None else self.stopping.looks.counts
        for before, count in pairwise((0, *counts)):
            for start in range(before, count, self.group):
                yield range(start, min(start + self.group, count))


def open_or_create(path: Path, sweep: Sweep, room: Room, provenance: Provenance, tokens: Array) -> list[int]:
    """The cells that are still missing from the store at ``path``, which is made if there is none.

    tokens: [arms, images]. Raises UsageError naming the setting where an existing store was made with others.
    """
    if not path.exists():
        template = empty(sweep, cross=room.cross)
        template["tokens"][...] = tokens
        store.create(path, template, provenance)
    else:
        found = differences(provenance, store.provenance(path))
        if found:
            raise UsageError(f"{path} was made otherwise: {found[0]}; use the same settings, or another --out")
    if sweep.folds is None:
        return store.missing(path)
    folds.begin(path)
    return sorted({*store.missing(path), *folds.lacking(path, sweep.cells)})


def empty(sweep: Sweep, *, cross: bool) -> "xr.Dataset":
    """The dataset of ``sweep`` with every label and no cell."""
    arms = [arm.text for arm in sweep.arms]
    return schema.template(
        list(sweep.metrics),
        sweep.sigmas,
        sweep.blocks,
        arms,
        sweep.images,
        range(sweep.draws),
        cross=cross,
        steps=sweep.steps,
    )


def run(path: Path, sweep: Sweep, room: Room, missing: Sequence[int], progress: Callable[[int], None]) -> None:
    """Compute and write the cells ``missing``. ``progress`` is told of gradients as they are done."""
    for index in missing:
        here, sigma = sweep.at(index)
        store.write_cell(path, index, cell(here, room, sigma, progress, partial(folds.write, path, index)))


def cell(
    sweep: Sweep, room: Room, sigma: float, progress: Callable[[int], None], keep: Keep | None = None
) -> dict[str, Array]:
    """Every array of one cell, at the sweep's point. Raises UsageError for gradients that are not finite.

    keep: is given the means over folds, where the sweep has any.
    """
    arms, images, draws = len(sweep.arms), len(sweep.images), sweep.draws
    cells: dict[str, Cell] = {}
    loss = np.zeros((arms, images, draws))
    seconds, used = np.zeros(arms), 0
    for group in sweep.groups():
        samples = sweep.samples([sweep.images[i] for i in group])
        measured = measure_arms(sweep, sigma, samples, seconds, progress)
        loss[:, group] = np.stack([losses for losses, _ in measured]).reshape(arms, len(group), draws)
        for name, metric in sweep.metrics.items():
            by_arm = [by_block(sweep, metric, gradients) for _, gradients in measured]
            if name not in cells:
                sizes = {block: by_arm[0][block].shape[1] for block in sweep.blocks}
                axes = Axes(arms, images, draws, sizes)
                draw_means = sweep.folds is not None and sweep.folds.draws > 0
                cells[name] = Cell(axes, room.allocate, cross=room.cross, draw_means=draw_means)
            for block in sweep.blocks:
                stacked = np.stack([coordinates[block] for coordinates in by_arm])
                cells[name].add(group, block, stacked.reshape(arms, len(group), draws, -1))
        used = group.stop
        if settled(sweep, cells, used):
            progress(arms * (images - used) * draws)  # saved
            break
    if keep is not None and sweep.folds is not None:
        keep(means_of_folds(cells, sweep.folds))
    found = [cells[name].arrays(used) for name in sweep.metrics]
    grams = {key: np.stack([arrays[key] for arrays in found]) for key in found[0]}
    loss = with_missing(loss[:, :used], used, images, axes=(1,))
    return {**grams, "loss": loss, "seconds": seconds, "images_used": np.array(used)}


def settled(sweep: Sweep, cells: Mapping[str, Cell], used: int) -> bool:
    """Whether the cell may stop after ``used`` images: a look is due, not the last, and no verdict is open."""
    if sweep.stopping is None or used not in sweep.stopping.looks.counts[:-1]:
        return False
    grams = [cells[name].grams(used) for name in sweep.metrics]
    image, draw = (np.stack(parts) for parts in zip(*grams, strict=True))
    return sweep.stopping.settled(image, draw, [arm.text for arm in sweep.arms])


def means_of_folds(cells: Mapping[str, Cell], kept: Folds) -> dict[str, Array]:
    """float32 means [arms, folds, coordinates] of each metric and block, over the folds of images and of draws."""
    found = {}
    for metric, measured in cells.items():
        for block in measured.axes.coordinates:
            means = fold_means(measured.image_means(block), kept.of_image)
            found[folds.tensor_name(metric, block, "images")] = means.astype(np.float32)
            if kept.draws:
                found[folds.tensor_name(metric, block, "draws")] = measured.draw_means(block).astype(np.float32)
    return found


def measure_arms(
    sweep: Sweep, sigma: float, samples: Sequence[Sample], seconds: Array, progress: Callable[[int], None]
) -> list[tuple[Array, dict[str, Array]]]:
    """Losses [B] and gradients by name [B, ...], float64, of every arm; adds to ``seconds`` [arms].

    An arm whose window leaves out ``sigma`` is the native step there and is not measured again.
    """
    done: dict[object, tuple[Array, dict[str, Array], float]] = {}
    for i, arm in enumerate(sweep.arms):
        plan = arm.plan(sigma)
        if plan not in done:
            started = perf_counter()
            gradients = sweep.measure(arm, sigma, samples)
            finite(gradients, arm, sigma, samples, sweep.block_of)
            in_float64 = {name: value.cpu().double().numpy() for name, value in gradients.by_name.items()}
            done[plan] = gradients.loss.cpu().double().numpy(), in_float64, perf_counter() - started
        seconds[i] += done[plan][2]
        progress(len(samples))
    return [done[arm.plan(sigma)][:2] for arm in sweep.arms]


def by_block(sweep: Sweep, metric: Metric, gradients: Mapping[str, Array]) -> dict[str, Array]:
    """Coordinates [B, k] of each block under ``metric``."""
    parts: dict[str, list[Array]] = {block: [] for block in sweep.blocks}
    for name, coordinates in metric(sweep.point, gradients).items():
        parts[sweep.block_of(name)].append(coordinates)
    return {block: np.concatenate(found, axis=1) for block, found in parts.items()}


def finite(
    gradients: Gradients, arm: SweptArm, sigma: float, samples: Sequence[Sample], block_of: Callable[[str], str]
) -> None:
    """Raise UsageError naming arm, sigma, image and block of a gradient that is not finite, the nearest to the loss."""
    for name, values in reversed(gradients.by_name.items()):
        good = values.isfinite().flatten(1).all(1)
        if not good.all():
            sample = samples[int((~good).nonzero()[0])]
            raise UsageError(
                f"gradient not finite: arm {arm.text}, sigma {sigma:g}, image {sample.image} draw {sample.draw}, "
                f"block {block_of(name)}; the cell is not written; look at that image, or use a wider dtype"
            )
