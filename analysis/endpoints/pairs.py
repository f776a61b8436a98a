"""Pairs of runs with their cosines, floors and verdicts, from the inner products of a store.

Verdicts of a pair, in words (docs/method.md, section 9):

    identical           equal to the byte
    separated           both runs carry a certificate of one environment and differ; or the cosine lies below the 95 %
                        prediction interval of three or more racing twins
    at the floor        as near as twins come: no effect shown, which does not show that there is none
    floor too wide      no lower than the interval, which reaches down to 0: nothing could be told from such twins
    below one twin      below every twin, of which there are fewer than three: their spread is unknown
    twins               runs of one command: they are the floor
    certificate refuted twins that are both certified and differ: no certificate of their environment counts
    no floor measured   a refusal: nothing tells this pair from chance
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import xarray as xr

from analysis.base.prediction import lowest_expected, middle
from analysis.schema import TOTAL

IDENTICAL, SEPARATED, AT_FLOOR = "identical", "separated", "at the floor"
BELOW_ONE, TOO_WIDE, TWINS = "below one twin", "floor too wide", "twins"
REFUTED, NO_FLOOR = "certificate refuted", "no floor measured"
ENOUGH = 3
"""Twins that tell a spread."""


@dataclass(frozen=True)
class Floor:
    """Cosines of ``twins`` runs with the one they repeat: their middle and, of three or more, the least expected."""

    twins: int
    cosine: float
    lowest: float | None


@dataclass(frozen=True)
class Figure:
    """A pair in one block, or in the sum over blocks. cosine: None where a displacement is zero or unknown."""

    cosine: float | None
    norm_a: float | None
    norm_b: float | None
    floor: Floor | None
    verdict: str


@dataclass(frozen=True)
class Pair:
    """Two runs at one step. blocks: in depth order. growth: cosine by step. note: what the verdict rests on."""

    a: str
    b: str
    step: int
    total: Figure
    blocks: Mapping[str, Figure]
    growth: Mapping[int, float | None]
    differing_tensors: int | None
    note: str = ""


def cosine_of(gram: np.ndarray) -> np.ndarray:
    """[..., n, n] inner products -> cosines, NaN where a displacement is zero."""
    norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(gram / (norms[..., :, None] * norms[..., None, :]), -1.0, 1.0)


def with_total(displacement: xr.DataArray) -> xr.DataArray:
    """The sum over blocks as a block of its own, the first: summed before any division."""
    total = displacement.sum("block").expand_dims(block=[TOTAL]).transpose(*displacement.dims)
    return xr.concat([total, displacement], "block")


class Study:
    """What decides verdicts, read from an end-point store once."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.names: list[str] = dataset["arm"].values.tolist()
        self.steps: list[int] = dataset["step"].values.tolist()
        self.blocks: list[str] = [TOTAL, *dataset["block"].values.tolist()]
        gram = with_total(dataset["displacement"]).values
        self.norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))[-1]  # [block, arm]
        differing = with_total(dataset["differing_tensors"]).values
        cosines = cosine_of(gram)
        # Equal bytes have cosine 1, not what rounding leaves of it.
        self.cosines = np.where((differing == 0) & ~np.isnan(cosines), 1.0, cosines)  # [step, block, arm, arm]
        self.differing = differing[-1]  # [block, arm, arm]
        self.command, self.treatment = dataset["command"].values.tolist(), dataset["treatment"].values.tolist()
        self.environment = dataset["environment"].values.tolist()
        self.deterministic = dataset["deterministic"].values.tolist()
        certified = dataset["certified"].values.tolist()
        broken = {
            self.environment[i]
            for i, j in combinations(range(len(self.names)), 2)
            if certified[i] and certified[j] and self.are_twins(i, j) and self.differing[0, i, j]
        }
        self.refuted = [certified[i] and self.environment[i] in broken for i in range(len(self.names))]
        self.certified = [certified[i] and not self.refuted[i] for i in range(len(self.names))]

    def are_twins(self, i: int, j: int) -> bool:
        """Whether two runs are of one command, in one environment."""
        mine, other = ((self.command[k], self.treatment[k], self.environment[k]) for k in (i, j))
        return bool(mine[0]) and mine == other

    def apart(self, i: int, j: int) -> bool:
        """Whether two runs are known to be of different environments; nothing is known of a LoRA file's."""
        mine, other = self.environment[i], self.environment[j]
        return bool(mine and other) and mine != other

    def strangers(self, i: int, j: int) -> bool:
        """Whether two runs are not known to be of one environment, as a bare file never is."""
        return not self.environment[i] or self.environment[i] != self.environment[j]

    def racing_twins(self, i: int, but: int) -> list[int]:
        """Runs of the command of ``i`` that nothing keeps from ending elsewhere; none for a deterministic one."""
        found: list[int] = []
        for k in range(len(self.names)):
            copy = any(not self.differing[0, k, other] for other in (i, *found))  # one run told twice has no spread
            if k not in (i, but) and self.are_twins(i, k) and not self.deterministic[i] and not copy:
                found.append(k)
        return found

    def pair(self, i: int, j: int) -> Pair:
        """Runs ``i`` and ``j``, as places in ``names``, at the last step."""
        twins = max((self.racing_twins(i, j), i), (self.racing_twins(j, i), j), key=lambda side: len(side[0]))
        # Where no run did anything, as in tensors that belong to no block known by their names, is nothing to compare.
        shown = [b for b in range(len(self.blocks)) if not b or self.norms[b].any()]
        figures = {self.blocks[b]: self.figure(b, i, j, *twins) for b in shown}
        total = figures.pop(TOTAL)
        growth = {step: known(self.cosines[s, 0, i, j]) for s, step in enumerate(self.steps)}
        differing = int(self.differing[0, i, j])
        note = self.note(i, j)
        return Pair(self.names[i], self.names[j], self.steps[-1], total, figures, growth, differing, note)

    def figure(self, block: int, i: int, j: int, twins: list[int], of: int) -> Figure:
        """The pair in one block; ``twins`` are runs of the command of run ``of``, which is ``i`` or ``j``."""
        cosine = self.cosines[-1, block, i, j]
        floor = None if self.strangers(i, j) else floor_of(self.cosines[-1, block, of, twins])
        verdict = self.verdict(block, i, j, cosine, floor)
        a, b = (float(self.norms[block, k]) for k in (i, j))
        return Figure(known(cosine), a, b, floor, verdict)

    def verdict(self, block: int, i: int, j: int, cosine: float, floor: Floor | None) -> str:
        """In the order of what each rests on: bytes, certificates, twins."""
        if not self.differing[block, i, j]:
            return IDENTICAL
        if self.strangers(i, j):
            return NO_FLOOR
        if self.refuted[i] and self.refuted[j] and self.are_twins(i, j):
            return REFUTED
        if self.certified[i] and self.certified[j]:
            return SEPARATED
        if self.are_twins(i, j):
            return TWINS
        if floor is None or np.isnan(cosine):
            return NO_FLOOR
        if floor.lowest is not None:
            return SEPARATED if cosine < floor.lowest else AT_FLOOR if floor.lowest > 0 else TOO_WIDE
        return BELOW_ONE if cosine < floor.cosine else AT_FLOOR

    def note(self, i: int, j: int) -> str:
        """What a reader must know beside the verdict."""
        if self.apart(i, j):
            return "made in different environments"
        if self.refuted[i] or self.refuted[j]:
            return "a certified twin differs, so certificates of this environment do not count"
        if self.command[i] and self.command[j] and self.command[i] != self.command[j]:
            return "not the arm alone: their settings, data or code differ too"
        return ""


def floor_of(cosines: np.ndarray) -> Floor | None:
    """The floor that twins tell; of fewer than three the lowest cosine itself. None for none, or where one is NaN."""
    if not cosines.size or np.isnan(cosines).any():
        return None
    if cosines.size < ENOUGH:
        return Floor(cosines.size, float(cosines.min()), None)
    return Floor(cosines.size, float(middle(cosines)), float(lowest_expected(cosines)))


def known(cosine: float) -> float | None:
    """None for NaN."""
    return None if np.isnan(cosine) else float(cosine)


def pairs(dataset: xr.Dataset, *, baseline: str | None = None, every: bool = False) -> list[Pair]:
    """Each run beside its reference; with ``every`` all pairs."""
    study = Study(dataset)
    chosen = combinations(range(len(study.names)), 2) if every else beside_reference(study, baseline)
    return [study.pair(i, j) for i, j in chosen]


def beside_reference(study: Study, baseline: str | None) -> Iterator[tuple[int, int]]:
    """Each run with ``baseline``; by default with the first native run of its own settings, or the first run.

    Runs that are the reference of their settings are compared with the first reference.
    """
    if baseline is not None:
        first = study.names.index(baseline)
        yield from ((first, j) for j in range(len(study.names)) if j != first)
        return
    references: dict[tuple[str, str], int] = {}
    kinds = list(zip(study.command, study.environment, strict=True))
    for i, kind in enumerate(kinds):
        known_as = references.setdefault(kind, i)
        if study.treatment[i] == "native" != study.treatment[known_as]:
            references[kind] = i
    first = references[kinds[0]]
    for j, kind in enumerate(kinds):
        reference = references[kind]
        if j != reference:
            yield reference, j
        elif j != first:
            yield first, j
