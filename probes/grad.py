"""``probes grad``: from settings to a finished store, on one screen.

resolve the settings -> load model, adapter and latents -> strict determinism -> check that a gradient
repeats -> sweep -> say what was written.
"""

import json as json_text
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from analysis.disk import naming_the_disk
from analysis.errors import UsageError
from analysis.policy.material import FEWEST_UNITS
from analysis.provenance import Provenance, this_code
from probes import grid as grids
from probes import sweep as sweeps
from probes.budget import Budget, timed
from probes.folds import Folds, disk, finish, folds_of, write
from probes.gradients import engine
from probes.jobs import in_processes, jobs_for
from probes.measure import StepGradients, check_engine
from probes.memory_of_sweep import memory_of
from probes.metrics import Point, metric
from probes.progress import counting
from probes.room import GIB, Room, plan_room
from train import determinism, model
from train.arms import NATIVE_ARM, Arm, parse
from train.attention.backend import backend_named
from train.environment import environment
from train.execution import device_named
from train.families import block_of, blocks, image_tokens
from train.memory import Memory
from train.plan import NATIVE
from train.repeatable import check_repeatable
from train.step import Source, clean_latent, step_input


@dataclass(frozen=True)
class Settings:
    """What the command line says, as it says it."""

    sigma_grid: str
    arms: tuple[str, ...]
    images: int
    draws: int
    metrics: tuple[str, ...]
    engine: str
    chunk: int
    attention: str
    model: str
    latents: Path | None
    adapter: Path | None
    rank: int
    seed: int
    jobs: int | None  # processes; None: as many as suit the machine, or one where threads are given
    threads: int | None  # of one process; None: 1
    memory: float  # GiB, of all processes together
    weights: str = "fp32"  # of the base model; bf16 halves its memory
    policy: bool = False  # keep means over folds, for inner products across sigma
    activation_checkpointing: bool = False
    device: str = "cpu"


def probe(settings: Settings, out: Path, *, dry_run: bool, json: bool) -> None:
    """Run the sweep that ``settings`` ask for into the store ``out``, or with ``dry_run`` say what it takes."""
    settings = replace(settings, device=device_named(settings.device))
    sigmas = grids.parse(settings.sigma_grid)
    arms = resolve_arms(settings.arms)
    begin(settings)
    for arm in arms[1:]:
        if all(arm.plan(sigma) == NATIVE for sigma in sigmas.sigmas):
            say(f"warning: arm {arm.text} makes the native step at every sigma of the grid; nothing is learned of it")
    sweep, source, hashes = prepare(settings, sigmas.sigmas, arms)
    tokens = count_tokens(arms, sweep.images, source)
    one = settings.threads or settings.device != "cpu"
    jobs = settings.jobs or (1 if one else jobs_for(len(sigmas.sigmas)))
    room = make_room(settings, sweep, out, jobs)
    say(f"{sigmas}\narms: {', '.join(arm.text for arm in arms)}")
    if dry_run:
        assert isinstance(sweep.measure, StepGradients)
        memory = memory_of(sweep, sweep.measure, arms, tokens, room)
        say(str(memory))  # before anything is computed, which may be too much
        report(timed(sweep, tokens, room, jobs), memory, json)
        return
    provenance = Provenance(shlex.join(sys.argv), resolved(settings, sweep), this_code(), hashes, environment())
    with sweeps.store.lock(out):
        missing = sweeps.open_or_create(out, sweep, room, provenance, tokens)
        if missing:
            check_repeats(sweep, arms, settings.attention)
            per_cell = len(sweep.arms) * len(sweep.images) * sweep.draws
            with counting(per_cell * len(sigmas.sigmas), per_cell * (len(sigmas.sigmas) - len(missing))) as progress:
                if jobs == 1:
                    sweeps.run(out, sweep, room, missing, progress)
                else:
                    write_cell = partial(sweeps.store.write_cell, out)
                    in_processes(
                        computing, (settings, room, out), missing, min(jobs, len(missing)), write_cell, progress
                    )
        if sweep.folds is not None:
            finish(out, sweep.folds, list(sweep.metrics), sweep.blocks, len(sweep.sigmas))
    finished = {"store": str(out), "cells": len(sigmas.sigmas), "computed": len(missing), "cross": room.cross}
    print(
        json_text.dumps(finished)
        if json
        else f"{out}: {len(missing)} of {len(sigmas.sigmas)} cells computed now; complete"
    )


def begin(settings: Settings) -> None:
    """Switches of the process, before anything is computed."""
    determinism.set_threads(settings.threads or 1)
    determinism.strict()


def computing(given: tuple[Settings, Room, Path]) -> Callable[[int, Callable[[int], None]], dict[str, np.ndarray]]:
    """In a new process: what computes a cell of this sweep."""
    settings, room, out = given
    begin(settings)
    sweep, _, _ = prepare(settings, grids.parse(settings.sigma_grid).sigmas, resolve_arms(settings.arms))
    return lambda index, progress: sweeps.cell(sweep, room, sweep.sigmas[index], progress, partial(write, out, index))


def resolve_arms(texts: tuple[str, ...]) -> tuple[Arm, ...]:
    """``native`` and the parsed arms. UsageError for one that is given twice or has a placement."""
    arms = [NATIVE_ARM]
    for arm in map(parse, texts):
        if arm.placement is not None:
            raise UsageError(f"arm '{arm.text}': a placement has a meaning in training only; write it without one")
        if arm == NATIVE_ARM or arm.text == NATIVE_ARM.text:
            continue
        if arm.text in [other.text for other in arms]:
            raise UsageError(f"arm '{arm.text}': given twice; give each arm once")
        arms.append(arm)
    return tuple(arms)


def prepare(
    settings: Settings, sigmas: tuple[float, ...], arms: tuple[Arm, ...]
) -> tuple[sweeps.Sweep, Source, dict[str, str]]:
    """Load everything the sweep needs; all input errors come from here, before any gradient."""
    if not 0 <= settings.memory < float("inf"):
        raise UsageError(f"--memory {settings.memory}: takes GiB, 0 or more")
    metrics = {name: metric(name) for name in dict.fromkeys(settings.metrics)}
    run_engine = engine(settings.engine)
    check_engine(run_engine, checkpointed=settings.activation_checkpointing)
    for name in (settings.attention, *(arm.plan(arm.hi).attention for arm in arms)):
        backend_named(name or settings.attention)
    loaded = model.load(settings.model, settings.weights)
    latents = model.latents_of(loaded, settings.latents)
    if settings.images > len(latents.names):
        raise UsageError(
            f"--images {settings.images}: the corpus has {len(latents.names)}; ask for fewer, or add pictures"
        )
    parameters, lora, adapter_hash = model.adapter_of(loaded, settings.adapter, rank=settings.rank, seed=settings.seed)
    if adapter_hash == "fresh":
        say("warning: a fresh adapter has up = 0, so the gradient of down is zero; probe a warmed one (--adapter)")
    loaded.transformer.to(settings.device)
    if settings.activation_checkpointing:
        loaded.transformer.enable_gradient_checkpointing()  # pyright: ignore[reportCallIssue]
    detached = {name: p.detach() for name, p in parameters.items()}
    source = Source(latents, loaded.family, settings.seed, loaded.dtype)
    in_float64 = {name: p.cpu().double().numpy() for name, p in detached.items()}
    names = {block_of(loaded.family, name) for name in detached}
    sweep = sweeps.Sweep(
        measure=StepGradients(
            loaded.transformer,
            detached,
            source,
            run_engine,
            settings.chunk,
            settings.attention,
            settings.device,
            settings.activation_checkpointing,
        ),
        arms=arms,
        sigmas=sigmas,
        images=latents.names[: settings.images],
        draws=settings.draws,
        metrics=metrics,
        point=Point(in_float64, lora.scale),
        block_of=lambda name: block_of(loaded.family, name),
        blocks=tuple(block for block in [*blocks(loaded.family, loaded.transformer), "other"] if block in names),
        group=max(1, settings.chunk // settings.draws),
        folds=folds_of(settings.images, settings.draws) if settings.policy else None,
    )
    for arm in arms:  # a tier the patch does not divide, a sigma shifted out of range: found before the first cell
        for sigma in sigmas:
            given = step_input(arm.plan(sigma), sweep.samples(sweep.images[:1])[0], sigma, source)
            with loaded.family.stretched(loaded.transformer, given.rope):
                pass  # a model without rotary positions refuses here
    return sweep, source, {"model": loaded.digest(), "adapter": adapter_hash, "latents": latents.digest()}


def count_tokens(arms: tuple[Arm, ...], images: tuple[str, ...], source: Source) -> np.ndarray:
    """Image tokens of each arm and image where the arm is active: [arms, images]."""
    tokens = np.zeros((len(arms), len(images)), np.int64)
    for i, arm in enumerate(arms):
        for j, image in enumerate(images):
            tokens[i, j] = image_tokens(source.family, clean_latent(arm.plan(arm.hi), image, source).shape)
    return tokens


def make_room(settings: Settings, sweep: sweeps.Sweep, out: Path, jobs: int) -> Room:
    """Where the gradients of one cell go; see ``probes.room``."""
    with naming_the_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    coordinates = sum(p.size for p in sweep.point.parameters.values()) * len(sweep.metrics)
    room = plan_room(
        arms=len(sweep.arms),
        images=len(sweep.images),
        draws=sweep.draws,
        group=sweep.group,
        coordinates=coordinates,
        memory=int(settings.memory * GIB / jobs),
        folder=out.parent,
        kept=sweep.folds.units if sweep.folds else 0,
    )
    if sweep.folds is not None:
        check_folds(sweep, sweep.folds, coordinates, out.parent)
    if not room.cross:
        say("warning: every draw's gradient does not fit; gram_cross is left out, and with it --population corpus")
    return room


def check_folds(sweep: sweeps.Sweep, folds: Folds, coordinates: int, folder: Path) -> None:
    """UsageError where the disk has no room for the means over folds; says where those of draws are left out."""
    takes = disk(folds, cells=len(sweep.sigmas), arms=len(sweep.arms), coordinates=coordinates)
    free = shutil.disk_usage(folder).free
    if takes > free:
        raise UsageError(
            f"--policy keeps {takes / GIB:.1f} GiB of means until the last cell is done, and {free / GIB:.1f} GiB are "
            f"free at {folder}; give fewer sigma or arms, a lower rank, or more disk"
        )
    if not folds.draws:
        say(f"--policy: {sweep.draws} draws make no folds (that takes {FEWEST_UNITS}); no policies for the corpus")


def check_repeats(sweep: sweeps.Sweep, arms: tuple[Arm, ...], attention: str) -> None:
    """The instrument's self-check: the first gradients of every arm twice, byte for byte."""
    samples = sweep.samples(sweep.images[:1])
    sigma = sweep.sigmas[0]
    for arm in arms:
        if (arm.plan(sigma).attention or attention) == "racing":
            say(f"arm {arm.text}: racing attention repeats no gradient to the bit, as asked; the store will differ")
            continue
        check_repeatable(lambda arm=arm: sweep.measure(arm, sigma, samples).by_name)


def resolved(settings: Settings, sweep: sweeps.Sweep) -> dict[str, object]:
    """Every setting that can change a number, as resolved."""
    said = asdict(settings)
    for name in (
        "sigma_grid",
        "jobs",
        "threads",
        "memory",
        "model",
        "latents",
        "adapter",
    ):  # by value or by hash elsewhere
        del said[name]
    if not settings.policy:
        del said["policy"]  # older stores do not say so
    return {
        **said,
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


def say(text: str) -> None:
    """A line for the person, on standard error."""
    print(text, file=sys.stderr, flush=True)
