"""Everything that ``probes grad`` is asked for, and what of it can change a number."""

from dataclasses import dataclass
from pathlib import Path


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


BY_OTHER_MEANS = ("sigma_grid", "jobs", "threads", "memory", "model", "latents", "adapter")
"""Settings that a store holds by value or by hash elsewhere, or that change no number."""
