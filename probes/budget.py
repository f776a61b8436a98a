"""What a sweep takes, from one timed group of images: ``probes grad --dry-run``."""

from dataclasses import dataclass, replace
from time import perf_counter

from probes import folds
from probes.room import GIB, Room
from probes.sweep import Sweep, cell


@dataclass(frozen=True)
class Budget:
    """gradients and tokens are counts; memory and disk in bytes; seconds of wall-clock time."""

    gradients: int
    tokens: int
    jobs: int  # processes
    memory: int  # for the gradients of a cell in each process, beside models and activations
    scratch: int  # on disk while cells are computed
    disk: int  # of the finished store, before compression
    seconds: float
    seconds_of_group: float
    gradients_of_group: int
    cross: bool
    folds: int = 0  # on disk until the last cell is done
    looks: tuple[int, ...] = ()  # images at which a cell may stop; then all else is the worst case

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        timed = self.gradients_of_group
        rate = timed / self.seconds_of_group
        return "\n".join(
            [
                f"gradients  {self.gradients:,}",
                f"tokens     {self.tokens:,}",
                f"processes  {self.jobs}",
                f"memory     {self.memory / GIB:.2f} GiB for gradients, beside a model in each process",
                f"scratch    {self.scratch / GIB:.2f} GiB on disk while it runs",
                *([f"folds      {self.folds / GIB:.3f} GiB on disk until the last cell is done"] if self.folds else []),
                f"disk       {self.disk / GIB:.3f} GiB for the store, at most",
                f"time       {minutes} min {seconds} s at {rate:.1f} gradients/s a process ({timed} timed)",
                *(
                    [f"looks      a cell may stop at {listed(self.looks)} images: this is the worst case"]
                    if self.looks
                    else []
                ),
                f"corpus     {'gram_cross is kept' if self.cross else 'gram_cross does not fit and is left out'}",
            ]
        )


def timed(sweep: Sweep, tokens: int, room: Room, jobs: int) -> Budget:
    """Measure one group of images at the middle sigma, after a warm-up, and scale.

    tokens: of one draw of every image, arm and sigma.

    The time is that of ``jobs`` processes that do not hold up each other.
    """
    here, sigma = sweep.at(len(sweep.sigmas) // 2)
    group = replace(here, images=sweep.images[: sweep.group], stopping=None)
    cell(group, room, sigma, lambda _: None)
    started = perf_counter()
    cell(group, room, sigma, lambda _: None)
    taken = perf_counter() - started
    cells = sweep.cells
    each, per_cell = (len(sweep.arms) * len(one.images) * sweep.draws for one in (group, sweep))
    held = room.means + (room.draws if room.cross else 0)
    return Budget(
        gradients=per_cell * cells,
        tokens=tokens * sweep.draws * max(1, len(sweep.steps)),
        jobs=jobs,
        memory=jobs * (room.working + (held if room.in_memory else 0)),
        scratch=0 if room.in_memory else jobs * held,
        disk=store_bytes(sweep, cross=room.cross),
        seconds=taken * per_cell / each * -(-cells // jobs),
        seconds_of_group=taken,
        gradients_of_group=each,
        cross=room.cross,
        folds=folds_bytes(sweep),
        looks=() if sweep.stopping is None else sweep.stopping.looks.counts[:-1],
    )


def listed(counts: tuple[int, ...]) -> str:
    """6, 12 or 18."""
    return " or ".join(filter(None, [", ".join(map(str, counts[:-1])), str(counts[-1])]))


def folds_bytes(sweep: Sweep) -> int:
    """Bytes of the fold means of all cells."""
    if sweep.folds is None:
        return 0
    coordinates = sum(p.size for p in sweep.point.parameters.values()) * len(sweep.metrics)
    return folds.disk(sweep.folds, cells=sweep.cells, arms=len(sweep.arms), coordinates=coordinates)


def store_bytes(sweep: Sweep, *, cross: bool) -> int:
    """Bytes of the store's arrays, uncompressed."""
    a, n, d = len(sweep.arms), len(sweep.images), sweep.draws
    of_block = (a * n) ** 2 + n * (a * d) ** 2 + (n * a * d * a if cross else 0)
    k = a * len(sweep.sigmas)
    units = [] if sweep.folds is None else [sweep.folds.units - sweep.folds.draws, sweep.folds.draws]
    across = 8 * len(sweep.metrics) * len(sweep.blocks) * sum((k * unit) ** 2 for unit in units)
    of_step = across + 8 * len(sweep.sigmas) * (len(sweep.metrics) * len(sweep.blocks) * of_block + a * n * d + a + 2)
    return of_step * max(1, len(sweep.steps))
