"""Everything a training run computes with, made from its settings before the first number is drawn."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from analysis import sigma_samplers
from analysis.errors import Refused, UsageError
from train import adapter_file, determinism, kohya, model, optimizer, placement, sigma_draws, weighting
from train.adapter import Lora, attach, attach_file, targeted
from train.arms import Arm, parse
from train.attention.backend import backend_named
from train.data_order import DataOrder
from train.execution import Execution, device_named
from train.families import Family, grid
from train.latents import Latents
from train.plan import NATIVE, Plan
from train.rope import Rope
from train.settings import Settings
from train.step import Source, step_input


@dataclass(frozen=True)
class Job:
    """A run: what is fixed, and the adapter and optimiser that its steps change.

    call: the transformer, or what the compiler made of it; hashes: of model, adapter and latents.
    """

    settings: Settings
    arm: Arm
    transformer: nn.Module
    call: Callable[..., Any]
    parameters: dict[str, nn.Parameter]
    lora: Lora
    adamw: torch.optim.AdamW
    source: Source
    order: DataOrder
    sampler: sigma_samplers.SigmaSampler
    weighting: weighting.Weighting
    execution: Execution
    hashes: Mapping[str, str]

    @property
    def family(self) -> Family:
        return self.source.family

    def sigmas(self, steps: range) -> np.ndarray:
        """sigma of every sample of ``steps``: [steps, samples], float64, the same for every arm."""
        tokens = None
        if self.sampler.needs_tokens:
            tokens = np.array([[self.native_tokens(s.image) for s in self.order.of(step)] for step in steps])
        return sigma_draws.draw_sigma_table(
            self.sampler, seed=self.settings.seed, steps=steps, samples=self.settings.samples, tokens=tokens
        )

    def native_tokens(self, image: str) -> int:
        """Image tokens of the native grid."""
        return int(np.prod(grid(self.family, *self.source.latents.shape(image, self.source.latents.tier))))

    @cached_property
    def schedule(self) -> placement.Schedule:
        """Which steps the arm treats."""
        return placement.schedule(self.arm, self.settings.steps, self.sigmas, seed=self.settings.seed)

    def plan(self, step: int) -> Plan:
        """What is done in ``step``: the whole of it as a route of the arm, or as the native step."""
        return self.arm.routes[self.schedule.route[step]].active if self.schedule.treated[step] else NATIVE


def prepare(settings: Settings, latents: Latents | None = None) -> Job:
    """Load and check everything; all errors of the input come from here. latents: instead of those settings name."""
    arm = parse(settings.arm)
    sampler, weights = sigma_samplers.parse(settings.sigma_sampler), weighting.parse(settings.weighting)
    execution = execution_of(settings, arm)
    loaded = model.load(settings.model, settings.weights)
    if latents is None:
        latents = model.latents_of(loaded, Path(settings.latents) if settings.latents else None)
    if (settings.images or 1) > len(latents.names):
        raise UsageError(f"--images {settings.images}: the corpus has {len(latents.names)}; ask for fewer")
    transformer = loaded.transformer.to(execution.device)
    parameters, lora, adapter = adapter_of(loaded, settings)
    if settings.adapter is not None:
        settings = replace(settings, rank=lora.rank, alpha=lora.alpha)
    if settings.activation_checkpointing:
        transformer.enable_gradient_checkpointing()  # pyright: ignore[reportCallIssue]
    job = Job(
        settings=settings,
        arm=arm,
        transformer=transformer,
        call=compiled(transformer) if settings.compile else transformer,
        parameters=parameters,
        lora=lora,
        adamw=optimizer.adamw(parameters, settings),
        source=Source(latents, loaded.family, settings.seed, loaded.dtype),
        order=DataOrder(latents.names[: settings.images], settings.samples, settings.seed),
        sampler=sampler,
        weighting=weights,
        execution=execution,
        hashes={"model": loaded.digest(), "adapter": adapter, "latents": latents.digest()},
    )
    check_arm(job)
    return job


def execution_of(settings: Settings, arm: Arm) -> Execution:
    """The run's own way to execute a step; refuses attention that cannot keep the promise of ``deterministic``."""
    for name in filter(None, (settings.attention, *(route.active.attention for route in arm.routes))):
        if settings.deterministic and not backend_named(name).can_be_deterministic:
            raise Refused(
                f"--deterministic with attention {name}: it cannot be; take sdpa, flash or math, or leave the flag"
            )
        backend_named(name)
    dtype = None if settings.precision == "fp32" else settings.precision
    return Execution(settings.attention, settings.deterministic, dtype, device_named(settings.device))


def adapter_of(loaded: model.Model, settings: Settings) -> tuple[dict[str, nn.Parameter], Lora, str]:
    """The adapter to train, in float32: parameters by name, its settings, and the hash of its file or ``fresh``."""
    if settings.adapter is not None:
        file, targets = Path(settings.adapter), settings.targets
        asked = targeted(loaded.transformer, targets) if targets else None
        parameters, lora = attach_file(loaded.transformer, file)
        if asked is not None and set(asked) != {name.partition(".lora_")[0] for name in parameters}:
            raise UsageError(f"--targets {targets}: other modules than those of {file}; leave --targets out")
        return parameters, lora, model.hash_of(adapter_file.files_of(file))
    alpha = float(settings.rank) if settings.alpha is None else settings.alpha
    lora = Lora(settings.rank, alpha, settings.targets or loaded.family.lora_targets)
    return attach(loaded.transformer, lora, settings.seed), lora, "fresh"


def compiled(transformer: nn.Module) -> Callable[..., Any]:
    """The transformer compiled anew: a graph made before the switches were set would not obey them."""
    torch._dynamo.reset()
    return torch.compile(transformer, dynamic=False)


def check_arm(job: Job) -> None:
    """Find what only shows with the data: a tier without latents or not divided by the patch, a sigma out of range."""
    latents = job.source.latents
    for plan in [route.active for route in job.arm.routes]:
        lower = plan.demote or plan.demote_latent or plan.repromote
        for name in job.order.names:
            latents.shape(name, lower.of(latents.tier) if lower else latents.tier)
        if plan.stretch.kind is not None:
            # A model without rotary positions refuses here, before a step is drawn that the arm treats.
            with job.family.stretched(job.transformer, Rope(factors=(2.0, 2.0))):
                pass
    if job.settings.format == "kohya":
        # Its errors come now, and not after the last step.
        kohya.converted(job.parameters, job.lora, job.family, job.transformer)
    for step, i, sigma in extremes(job):
        rope = step_input(job.plan(step), job.order.of(step)[i], sigma, job.source).rope
        with job.family.stretched(job.transformer, rope):
            pass  # and a grid whose positions it cannot stretch


def extremes(job: Job) -> list[tuple[int, int, float]]:
    """The treated samples of least and largest sigma of each route, as (step, sample of the step, sigma)."""
    found = []
    for steps in map(np.flatnonzero, job.schedule.by_route(len(job.arm.routes))):
        if steps.size:
            sigmas = job.sigmas(range(job.settings.steps))[steps]
            places = [np.unravel_index(at, sigmas.shape) for at in (sigmas.argmin(), sigmas.argmax())]
            found += [(int(steps[row]), int(column), float(sigmas[row, column])) for row, column in places]
    return found


def begin(settings: Settings) -> None:
    """Switches of the process, before a model is loaded and before anything is compiled."""
    determinism.set_threads(settings.threads or torch.get_num_threads())
    if settings.deterministic:
        determinism.strict()
