"""Every arm of a probe store in doses of every mark, per metric and sigma, in the sum over blocks."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis import moments
from analysis.estimate import Figure
from analysis.marks import sizes
from analysis.marks.known import Mark, mark, marks
from analysis.moments import Moments

NATIVE_UNRESOLVED = "the native mean gradient is not told from zero"
MARK_UNRESOLVED = "the mark is not resolved; use a larger dose or more images"
MARK_INACTIVE = "the mark makes the native step there"
INACTIVE = "the arm makes the native step there"
NOT_SEEN = "no bias seen"
SLACK = 1e-6
"""Relative rounding: where two biases are one multiple of each other in every image, the interval has no width."""


@dataclass(frozen=True)
class Equivalent:
    """One arm at one sigma as a dose of one mark.

    ``by`` is the mark's arm, None for ``gain`` and ``jitter``, which need none. ``dose`` with its 95 % interval is in
    the mark's unit, or in multiples of ``by`` where it has none. ``note`` says why a figure is NaN: with ``NOT_SEEN``
    the interval still bounds it from above.
    """

    metric: str
    sigma: float
    arm: str
    kind: str
    by: str | None
    dose: float
    lower: float
    upper: float
    note: str = ""


@dataclass(frozen=True)
class Measured:
    """All equivalents, the store's own marks, and what is wrong with these."""

    equivalents: list[Equivalent]
    marks: list[Mark]
    warnings: list[str]


@dataclass(frozen=True)
class _Arms:
    """``names`` of a store, those that are ``treated``, and the ``marks`` among these."""

    names: list[str]
    treated: list[str]
    marks: list[Mark]
    baseline: str
    population: str

    def place(self, arm: str) -> int:
        return self.treated.index(arm)


@dataclass(frozen=True)
class _Cell:
    """One sigma in the sum over blocks: moments [metric, arm], products of draws [metric, n, arm, draw, arm, draw].

    ``idle``: arms that make the baseline's step there, to the bit.
    """

    sigma: float
    moments: Moments
    gram_draw: np.ndarray
    idle: np.ndarray


@dataclass(frozen=True)
class _Sized:
    """An arm's squared size [metric] in one mark; ``unit`` is the dose of size 1, ``lost`` why it may be NaN."""

    kind: str
    by: str | None
    squared: Figure
    unit: float
    lost: str


def equivalents(dataset: xr.Dataset, *, baseline: str = "native", population: str = "images") -> Measured:
    """Equivalents of every arm but ``baseline`` at every done sigma, for a request that ``safety.assess`` accepts."""
    names = dataset["arm"].values.tolist()
    treated = [name for name in names if name != baseline]
    arms = _Arms(names, treated, marks(treated), baseline, population)
    metrics = dataset["metric"].values.tolist()
    found: list[Equivalent] = []
    bent: dict[tuple[str, str], list[float]] = defaultdict(list)
    done = np.flatnonzero(dataset["done"].values)
    for index in done:
        cell = _cell(dataset.isel(sigma=int(index)), arms)
        for arm in treated:
            for sized in _sizes(cell, arm, arms):
                found += _rows(cell, arm, sized, metrics, idle=bool(cell.idle[arms.place(arm)]))
        for pair in _out_of_proportion(cell, arms):
            bent[pair].append(cell.sigma)
    return Measured(found, arms.marks, [*_wrong(found, arms.marks), *_bent(bent, done.size)])


def _cell(cell: xr.Dataset, arms: _Arms) -> _Cell:
    places = {"baseline": arms.names.index(arms.baseline), "arms": [arms.names.index(arm) for arm in arms.treated]}
    n = int(cell["images_used"])
    image = cell["gram_image"].values[..., :n, :, :n].sum(1)
    draw = cell["gram_draw"].values[:, :, :n].sum(1)
    if arms.population == "corpus":
        part = moments.corpus(image, draw, cell["gram_cross"].values[:, :, :n].sum(1), **places)
    else:
        part = moments.images(image, draw, **places)
    idle = (np.diagonal(part.bias_gram, axis1=-2, axis2=-1) == 0.0).all((0, -1))
    return _Cell(float(cell["sigma"]), part, draw, idle)


def _sizes(cell: _Cell, arm: str, arms: _Arms) -> Iterator[_Sized]:
    """One arm's size in every mark but the doses of its own kind; a gain or a jitter measures itself, as a check."""
    place = arms.place(arm)
    yield _Sized("gain", None, sizes.gain_squared(cell.moments, place), 1.0, NATIVE_UNRESOLVED)
    at = (arms.names.index(arms.baseline), arms.names.index(arm))
    jitter = sizes.jitter_squared(cell.gram_draw, *at, population=arms.population)
    yield _Sized("jitter", None, jitter, 1.0, NATIVE_UNRESOLVED)
    itself = mark(arm)
    for one in arms.marks:
        doses_of_one = itself is not None and itself.kind == one.kind == "shift"
        if one.kind in ("gain", "jitter") or one.arm == arm or doses_of_one:
            continue
        by = arms.place(one.arm)
        lost = MARK_INACTIVE if cell.idle[by] else MARK_UNRESOLVED
        yield _Sized(one.kind, one.arm, sizes.times_squared(cell.moments, place, by), one.dose or 1.0, lost)


def _rows(cell: _Cell, arm: str, sized: _Sized, metrics: Sequence[str], *, idle: bool) -> Iterator[Equivalent]:
    """One row a metric: roots of the squares, in the mark's unit."""
    squares = zip(sized.squared.value, sized.squared.lower, sized.squared.upper, strict=True)
    for metric, (value, lower, upper) in zip(metrics, squares, strict=True):
        note = INACTIVE if idle else sized.lost if math.isnan(value) else "" if value > 0.0 else NOT_SEEN
        dose = sized.unit * math.sqrt(value) if not note else math.nan
        ends = (math.nan, math.nan)
        if note in ("", NOT_SEEN):
            ends = sized.unit * math.sqrt(max(lower, 0.0)), sized.unit * math.sqrt(max(upper, 0.0))
        yield Equivalent(metric, cell.sigma, arm, sized.kind, sized.by, dose, *ends, note)


def _wrong(found: Sequence[Equivalent], own: Sequence[Mark]) -> Iterator[str]:
    """Gains and jitters of the store that do not measure as what they are."""
    for one in own:
        if one.kind not in ("gain", "jitter") or one.dose is None:
            continue
        highest, lowest = one.dose * (1 + SLACK), one.dose * (1 - SLACK)
        itself = [row for row in found if (row.arm, row.kind) == (one.arm, one.kind)]
        off = [row.sigma for row in itself if row.lower > highest or row.upper < lowest]
        if off:
            yield f"{one.arm} does not measure as a {one.kind} of {one.dose:g} at sigma {_listed(off)}"


def _out_of_proportion(cell: _Cell, arms: _Arms) -> Iterator[tuple[str, str]]:
    """Pairs of shifts whose ratio of biases excludes that of their doses."""
    active = [one for one in arms.marks if not cell.idle[arms.place(one.arm)]]
    shifts = [one for one in active if one.kind == "shift"]
    for place, small in enumerate(shifts):
        for large in shifts[place + 1 :]:
            assert small.dose is not None and large.dose is not None  # noqa: PT018 - both or neither
            expected = (small.dose / large.dose) ** 2
            squared = sizes.times_squared(cell.moments, arms.place(small.arm), arms.place(large.arm))
            if ((squared.lower > expected * (1 + SLACK)) | (squared.upper < expected * (1 - SLACK))).any():
                yield small.arm, large.arm


def _bent(pairs: dict[tuple[str, str], list[float]], sigmas: int) -> Iterator[str]:
    for (small, large), off in pairs.items():
        yield (
            f"{small} and {large} are not in proportion at sigma {_listed(off)} ({len(off)} of {sigmas}; by chance one "
            "in twenty): there a dose read off either tells the order of size alone"
        )


def _listed(sigmas: Sequence[float]) -> str:
    return ", ".join(f"{sigma:g}" for sigma in dict.fromkeys(sigmas))
