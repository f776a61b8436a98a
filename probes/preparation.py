"""From settings to everything a sweep computes with: arms, model, adapter, latents, and room for gradients."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analysis.disk import naming_the_disk
from analysis.errors import UsageError
from analysis.policy.material import FEWEST_UNITS
from probes import sweep as sweeps
from probes.checkpoints import find_all
from probes.folds import Folds, disk, folds_of
from probes.gradients import engine
from probes.measure import StepGradients, check_engine
from probes.metrics import metric
from probes.points import Points, say, sizes
from probes.room import GIB, Room, plan_room
from probes.settings import Settings
from probes.until_resolved import stopping_of
from train import model
from train.arms import NATIVE_ARM, Arm, parse
from train.attention.backend import backend_named
from train.families import block_of, blocks, image_tokens
from train.plan import Plan
from train.step import Source, clean_latent, step_input


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
) -> tuple[sweeps.Sweep, Source, Points]:
    """Load everything the sweep needs; all input errors come from here, before any gradient."""
    if not 0 <= settings.memory < float("inf"):
        raise UsageError(f"--memory {settings.memory}: takes GiB, 0 or more")
    metrics = {name: metric(name) for name in dict.fromkeys(settings.metrics)}
    stopping = stopping_of(settings, arms)
    run_engine = engine(settings.engine)
    check_engine(run_engine, checkpointed=settings.activation_checkpointing)
    for name in (settings.attention, *(route.active.attention for arm in arms for route in arm.routes)):
        backend_named(name or settings.attention)
    loaded = model.load(settings.model, settings.weights)
    latents = model.latents_of(loaded, settings.latents)
    if settings.images > len(latents.names):
        raise UsageError(
            f"--images {settings.images}: the corpus has {len(latents.names)}; ask for fewer, or add pictures"
        )
    checkpoints = find_all(settings.adapter or ())
    points = Points(loaded, checkpoints, rank=settings.rank, seed=settings.seed, adam="adam" in metrics)
    loaded.transformer.to(settings.device)
    if settings.activation_checkpointing:
        loaded.transformer.enable_gradient_checkpointing()  # pyright: ignore[reportCallIssue]
    detached = {name: p.detach() for name, p in points.parameters.items()}
    source = Source(latents, loaded.family, settings.seed, loaded.dtype)
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
        point=points.at(0),
        steps=points.steps,
        go_to=points.at,
        block_of=lambda name: block_of(loaded.family, name),
        blocks=tuple(block for block in [*blocks(loaded.family, loaded.transformer), "other"] if block in names),
        group=max(1, settings.chunk // settings.draws),
        folds=folds_of(settings.images, settings.draws) if settings.policy else None,
        stopping=stopping,
    )
    for arm in arms:  # a tier the patch does not divide, a sigma shifted out of range: found before the first cell
        for sigma in sigmas:
            given = step_input(arm.plan(sigma), sweep.samples(sweep.images[:1])[0], sigma, source)
            with loaded.family.stretched(loaded.transformer, given.rope):
                pass  # a model without rotary positions refuses here
    points.hashes |= {"model": loaded.digest(), "latents": latents.digest()}
    return sweep, source, points


def count_tokens(plans: Sequence[Plan], images: tuple[str, ...], source: Source) -> np.ndarray:
    """Image tokens of each image under each plan: [plans, images]."""
    shapes = [[clean_latent(plan, image, source).shape for image in images] for plan in plans]
    return np.array([[image_tokens(source.family, shape) for shape in row] for row in shapes], np.int64)


def make_room(settings: Settings, sweep: sweeps.Sweep, out: Path, jobs: int) -> Room:
    """Where the gradients of one cell go; see ``probes.room``."""
    with naming_the_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    coordinates = sizes(sweep.point.parameters) * len(sweep.metrics)
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
    takes = disk(folds, cells=sweep.cells, arms=len(sweep.arms), coordinates=coordinates)
    free = shutil.disk_usage(folder).free
    if takes > free:
        raise UsageError(
            f"--policy keeps {takes / GIB:.1f} GiB of means until the last cell is done, and {free / GIB:.1f} GiB are "
            f"free at {folder}; give fewer sigma or arms, a lower rank, or more disk"
        )
    if not folds.draws:
        say(f"--policy: {sweep.draws} draws make no folds (that takes {FEWEST_UNITS}); no policies for the corpus")
