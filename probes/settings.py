"""Everything that ``probes grad`` is asked for, and what of it can change a number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import UsageError


@dataclass(frozen=True)
class Until:
    """When a cell stops. margin None: the rule's default; settle: arms whose verdicts it waits for, none for all."""

    looks: int = 4
    rule: str = "relative"
    margin: float | None = None
    settle: tuple[str, ...] = ()


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
    adapter: tuple[str, ...] | None  # files, runs (RUN) and their checkpoints (RUN@STEP); None: the model's own
    rank: int
    seed: int
    jobs: int | None  # processes; None: as many as suit the machine, or one where threads are given
    threads: int | None  # of one process; None: 1
    memory: float  # GiB, of all processes together
    weights: str = "fp32"  # of the base model; bf16 halves its memory
    policy: bool = False  # keep means over folds, for inner products across sigma
    activation_checkpointing: bool = False
    device: str = "cpu"
    until_resolved: Until | None = None  # None: every cell has all images


BY_OTHER_MEANS = ("sigma_grid", "jobs", "threads", "memory", "model", "latents", "adapter", "until_resolved")
"""Settings that a store holds by value or by hash elsewhere, or that change no number."""


def until(asked: bool, **options: Any) -> Until | None:
    """When a cell stops, from the options that were given. UsageError for one that has nothing to stop."""
    given = {name: value for name, value in options.items() if value is not None}
    if given and not asked:
        raise UsageError(f"--{next(iter(given))} says when a cell may stop: give --until-resolved with it")
    return Until(**given) if asked else None
