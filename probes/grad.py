"""``probes grad``: from settings to a finished store, on one screen.

resolve the settings -> load model, adapter and latents -> strict determinism -> check that a gradient
repeats -> sweep -> say what was written.
"""

import json as json_text
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from analysis.provenance import Provenance, this_code
from analysis.sequential import SETTING
from probes import grid as grids
from probes import sweep as sweeps
from probes.budget import Budget, listed, timed
from probes.folds import finish, write
from probes.jobs import in_processes, jobs_for
from probes.measure import StepGradients
from probes.memory_of_sweep import memory_of
from probes.points import Points, say
from probes.preparation import count_tokens, make_room, prepare, resolve_arms
from probes.progress import counting
from probes.room import Room
from probes.settings import BY_OTHER_MEANS, Settings
from train import determinism
from train.arms import Arm
from train.environment import environment
from train.execution import device_named
from train.memory import Memory
from train.plan import NATIVE
from train.repeatable import check_repeatable


def probe(settings: Settings, out: Path, *, dry_run: bool, json: bool) -> None:
    """Run the sweep that ``settings`` ask for into the store ``out``, or with ``dry_run`` say what it takes."""
    settings = replace(settings, device=device_named(settings.device))
    sigmas = grids.parse(settings.sigma_grid)
    arms = resolve_arms(settings.arms)
    if out.exists():
        sweeps.store.provenance(out)  # what is no store is refused here, and not after a model is loaded
    begin(settings)
    for arm in arms[1:]:
        if all(arm.plan(sigma) == NATIVE for sigma in sigmas.sigmas):
            say(f"warning: arm {arm.text} makes the native step at every sigma of the grid; nothing is learned of it")
    sweep, source, points = prepare(settings, sigmas.sigmas, arms)
    tokens = count_tokens([arm.plan(arm.hi) for arm in arms], sweep.images, source)
    one = settings.threads or settings.device != "cpu"
    jobs = settings.jobs or (1 if one else jobs_for(sweep.cells))
    room = make_room(settings, sweep, out, jobs)
    if dry_run:
        introduce(sweep, sigmas)
        assert isinstance(sweep.measure, StepGradients)
        memory = memory_of(sweep, sweep.measure, arms, tokens, room)
        say(str(memory))  # before anything is computed, which may be too much
        plans = [arm.plan(sigma) for sigma in sweep.sigmas for arm in arms]
        every = int(count_tokens(plans, sweep.images, source).sum())
        report(timed(sweep, every, room, jobs), memory, json)
        return
    provenance = Provenance(
        shlex.join(sys.argv), resolved(settings, sweep, points), this_code(), points.hashes, environment()
    )
    with sweeps.store.lock(out):
        missing = sweeps.open_or_create(out, sweep, room, provenance, tokens)
        introduce(sweep, sigmas)  # not before: a store made otherwise is one line
        if missing:
            check_repeats(sweep.at(0)[0], arms, settings.attention)
            per_cell = len(sweep.arms) * len(sweep.images) * sweep.draws
            with counting(per_cell * sweep.cells, per_cell * (sweep.cells - len(missing))) as progress:
                if jobs == 1:
                    sweeps.run(out, sweep, room, missing, progress)
                else:
                    write_cell = partial(sweeps.store.write_cell, out)
                    in_processes(
                        computing, (settings, room, out), missing, min(jobs, len(missing)), write_cell, progress
                    )
        if sweep.folds is not None:
            finish(out, sweep.folds, list(sweep.metrics), sweep.blocks, len(sweep.sigmas))
    finished = {"store": str(out), "cells": sweep.cells, "computed": len(missing), "cross": room.cross}
    told = f"{out}: {len(missing)} of {sweep.cells} cells computed now; complete"
    if sweep.stopping is not None:
        used, most = int(sweeps.store.open_store(out)["images_used"].sum()), len(sweep.images) * sweep.cells
        finished |= {"images_used": used, "images": most}
        told += f"; {used} of {most} images used"
    print(json_text.dumps(finished) if json else told)


def begin(settings: Settings) -> None:
    """Switches of the process, before anything is computed."""
    determinism.set_threads(settings.threads or 1)
    determinism.strict()


def introduce(sweep: sweeps.Sweep, sigmas: grids.SigmaGrid) -> None:
    """Say what will be measured."""
    at = f"\ncheckpoints after {', '.join(map(str, sweep.steps))} steps" if sweep.steps else ""
    say(f"{sigmas}{at}\narms: {', '.join(arm.text for arm in sweep.arms)}")
    if sweep.stopping is None:
        return
    early, waiting = sweep.stopping.looks.counts[:-1], ", ".join(sweep.stopping.arms)
    say(f"a cell stops at {listed(early)} images when these are settled: {waiting}")


def computing(given: tuple[Settings, Room, Path]) -> Callable[[int, Callable[[int], None]], dict[str, np.ndarray]]:
    """In a new process: what computes a cell of this sweep."""
    settings, room, out = given
    begin(settings)
    sweep, _, _ = prepare(settings, grids.parse(settings.sigma_grid).sigmas, resolve_arms(settings.arms))

    def compute(index: int, progress: Callable[[int], None]) -> dict[str, np.ndarray]:
        here, sigma = sweep.at(index)
        return sweeps.cell(here, room, sigma, progress, partial(write, out, index))

    return compute


def check_repeats(sweep: sweeps.Sweep, arms: tuple[Arm, ...], attention: str) -> None:
    """The instrument's self-check: the first gradients of every arm twice, byte for byte."""
    samples = sweep.samples(sweep.images[:1])
    sigma = sweep.sigmas[0]
    for arm in arms:
        if (arm.plan(sigma).attention or attention) == "racing":
            say(f"arm {arm.text}: racing attention repeats no gradient to the bit, as asked; the store will differ")
            continue
        check_repeatable(lambda arm=arm: sweep.measure(arm, sigma, samples).by_name)


def resolved(settings: Settings, sweep: sweeps.Sweep, points: Points) -> dict[str, object]:
    """Every setting that can change a number, as resolved."""
    said = {name: value for name, value in asdict(settings).items() if name not in BY_OTHER_MEANS}
    if not settings.policy:
        del said["policy"]  # older stores do not say so
    if sweep.stopping is not None:
        said[SETTING] = sweep.stopping.as_setting()
    return {
        **said,
        **points.settings,
        "sigmas": list(sweep.sigmas),
        "arms": [arm.text for arm in sweep.arms],
        "image_names": list(sweep.images),
        "metrics": list(sweep.metrics),
        "group": sweep.group,
    }


def report(budget: Budget, memory: Memory, json: bool) -> None:
    """Print what the sweep would take."""
    both = {**asdict(budget), "memory_of_process": {**asdict(memory), "total": memory.total}}
    print(json_text.dumps(both) if json else str(budget))
