"""``probes horizon``: from settings to a finished store and its report, on one screen.

resolve the settings -> strict determinism -> model, start, plan of every seed -> certificate -> runs, each kept when it
is done -> inner products of a seed when its last run is -> table and figure.
"""

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.disk import check_folder, naming_the_disk
from analysis.errors import Refused, UsageError
from analysis.horizon import schema, store
from analysis.horizon.command import print_horizon
from analysis.provenance import Provenance, differences, this_code
from probes.horizon import kept, start
from probes.horizon.budget import print_budget
from probes.horizon.displacement import cell
from probes.horizon.ladder import jitter_name
from probes.horizon.rollout import rollout
from probes.horizon.settings import Settings
from probes.horizon.training import Training, training
from probes.jobs import in_processes, jobs_for
from probes.progress import counting
from train import job as jobs
from train.certify import certify
from train.environment import environment
from train.families import blocks
from train.plan import NATIVE

Array = np.ndarray


def horizon(
    settings: Settings, out: Path, *, processes: int | None, png: Path | None, dry_run: bool, json: bool
) -> None:
    """Make or finish the store ``out``, then print what it says; with ``dry_run`` say what it takes."""
    job, begun = prepared(settings)
    systems = [system_of(settings, job, begun, place) for place in range(settings.seeds)]
    check(settings, systems)
    runs = len(settings.ladder.branches)
    count = processes or (1 if job.execution.device != "cpu" else jobs_for(settings.seeds * runs))
    if dry_run:
        print_budget(settings, systems, count, json_object=json)
        return
    with naming_the_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        check_folder(png or out)
    with store.lock(out):
        origin = Provenance(shlex.join(sys.argv), settings.numbers(), this_code(), hashes(settings, job), environment())
        missing = open_or_create(out, settings, systems[0], origin, job)
        work = [
            place * runs + run for place in missing for run in range(runs) if not kept.file_of(out, place, run).exists()
        ]
        total, each = settings.seeds * runs, settings.ladder.steps[-1]
        with counting(total * each, (total - len(work)) * each, unit="step") as progress:
            finish = partial(finish_seed, out, settings, systems[0])
            if count == 1:
                for index in work:
                    compute(settings, systems[index // runs], out, index, progress)
                    finish(index // runs)
            elif work:
                written = lambda index, _: finish(index // runs)  # noqa: E731
                in_processes(computing, (settings, out), work, min(count, len(work)), written, progress)
        for place in missing:  # those whose last run was kept just before a kill
            finish(place)
        kept.end(out)
    print_horizon(out, store.read(out), json_object=json, png=png)


def prepared(settings: Settings) -> tuple[jobs.Job, start.Start]:
    """Switches, model and start: everything that is the same for all seeds."""
    jobs.begin(settings.train)
    job = jobs.prepare(settings.train)
    return job, start.begin(job, settings.start)


def system_of(settings: Settings, job: jobs.Job, begun: start.Start, place: int) -> Training:
    """The system of the seed at ``place``."""
    return training(job, begun, settings.train.seed + place, settings.ladder.size)


def check(settings: Settings, systems: list[Training]) -> None:
    """UsageError where an arm has nothing to measure, or a sigma of some seed cannot be treated."""
    arm = systems[0].treated.arm
    if all(route.active == NATIVE for route in arm.routes):
        raise UsageError(f"--arm {arm.text}: makes the native step everywhere; give a treatment, as repromote:56@0.5")
    for system in systems:
        jobs.check_arm(system.treated)
        if not system.treated.schedule.treated.any():
            raise UsageError(
                f"--arm {arm.text}: treats none of the {settings.ladder.steps[-1]} steps of seed "
                f"{system.treated.settings.seed}; widen its window, take more --steps or a smaller --batch-size"
            )


def hashes(settings: Settings, job: jobs.Job) -> dict[str, str]:
    """Of everything that is read."""
    return {**job.hashes, "optimizer": start.digest(job, settings.start)}


def open_or_create(out: Path, settings: Settings, system: Training, origin: Provenance, job: jobs.Job) -> list[int]:
    """Places of the seeds that are still missing. Takes a certificate before the first step that counts.

    UsageError naming the setting where a store was made with others; Refused where steps do not repeat.
    """
    if out.exists():
        found = differences(origin, store.provenance(out))
        if found:
            raise UsageError(f"{out} was made otherwise: {found[0]}; use the same settings, or another --out")
    missing = store.missing(out) if out.exists() else list(range(settings.seeds))
    if not missing:
        return []
    print("taking a certificate: steps are repeated, and compared to the byte", file=sys.stderr)
    certificate = certify(job)
    if not certificate.granted:
        raise Refused(f"a horizon takes runs that repeat: {'; '.join(certificate.against)}")
    if not out.exists():
        ladder, first = settings.ladder, settings.train.seed
        jitters = [jitter_name(i) for i in range(1, ladder.jitters + 1)]
        about = {"treatment": job.arm.text, "start": settings.start, "learning_rate": settings.train.learning_rate}
        seeds = range(first, first + settings.seeds)
        template = schema.template(seeds, ladder.steps, blocks_of(system), ladder.doses, jitters, about)
        store.create(out, template, replace(origin, certificate=certificate.as_json()))
    kept.begin(out)
    return missing


def blocks_of(system: Training) -> list[str]:
    """Blocks that have a part of the adapter, in depth order."""
    own = system.position()
    every = [*blocks(system.native.family, system.native.transformer), "other"]
    return [block for block in every if block in own]


def computing(given: tuple[Settings, Path]) -> Callable[[int, Callable[[int], None]], dict[str, Array]]:
    """In a new process: what makes a run and keeps it."""
    settings, out = given
    job, begun = prepared(settings)
    runs = len(settings.ladder.branches)

    def of(index: int, progress: Callable[[int], None]) -> dict[str, Array]:
        compute(settings, system_of(settings, job, begun, index // runs), out, index, progress)
        return {}

    return of


def compute(settings: Settings, system: Training, out: Path, index: int, progress: Callable[[int], Any]) -> None:
    """One run, into its file."""
    place, run = divmod(index, len(settings.ladder.branches))
    branch = settings.ladder.branches[run]
    with jobs.determinism.guarded():
        kept.write(out, place, run, rollout(system, branch, settings.ladder.steps, progress))


def finish_seed(out: Path, settings: Settings, system: Training, place: int) -> None:
    """Write a seed whose runs are all kept, and drop them; nothing where one is still to come."""
    ladder, runs = settings.ladder, len(settings.ladder.branches)
    if not all(kept.file_of(out, place, run).exists() for run in range(runs)):
        return
    read = partial(kept.read, out, place)
    store.write_cell(out, place, cell(read, runs, blocks_of(system), ladder.steps, len(ladder.doses)))
    kept.drop(out, place)
