"""The state that every run begins from: warm, an adapter with its optimiser's state, or cold, a fresh one without."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from analysis.errors import UsageError
from analysis.run_folder import ADAPTER, OPTIMIZER
from train import model_files, optimizer
from train.job import Job
from train.model import hash_of
from train.state import snapshot

WARM, COLD = "warm", "cold"


@dataclass(frozen=True)
class Start:
    """kept: adapter and moments as ``train.state`` names them; step: optimiser steps they have behind them."""

    kind: str
    kept: Mapping[str, Tensor]
    step: int


def adapter_for(kind: str, adapter: str | None, model: str) -> str | None:
    """The adapter's file of a start of that ``kind``: the given one, else the model's own; None for a cold start."""
    if kind not in (WARM, COLD):
        raise UsageError(f"--start {kind}: takes {WARM} or {COLD}")
    if kind == COLD:
        if adapter is not None:
            raise UsageError(f"--adapter {adapter}: a cold start makes a fresh one; leave it out, or take --start warm")
        return None
    file = Path(adapter) if adapter is not None else model_files.find(model).folder / "adapter" / ADAPTER
    if adapter is None and not file.is_file():
        raise UsageError(f"model {model}: it has no adapter of its own; give --adapter, or --start {COLD}")
    if file.is_file() and not state_of(file).is_file():
        raise UsageError(
            f"--adapter {file}: no {OPTIMIZER} beside it, which a warm start goes on from; give the adapter of a "
            f"checkpoint that train wrote, or --start {COLD}"
        )
    return str(file)


def state_of(adapter: Path) -> Path:
    """The optimiser's state that belongs to an adapter's file."""
    return adapter.parent / OPTIMIZER


def begin(job: Job, kind: str) -> Start:
    """The start of ``job``, whose adapter is attached; its optimiser's state is read if the start is warm."""
    step = 0
    if kind == WARM:
        state, step = read(state_of(Path(str(job.settings.adapter))))
        optimizer.restore(job.adamw, job.parameters, state, step)
    return Start(kind, snapshot(job), step)


def read(file: Path) -> tuple[dict[str, Tensor], int]:
    """Both moments by name, and after how many steps they were written. UsageError for anything but AdamW's state."""
    try:
        with safe_open(file, framework="pt") as opened:
            about = opened.metadata() or {}
            state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{file}: not a readable optimiser state ({error}); give a checkpoint of train") from None
    step = about.get("step", "")
    if about.get("optimizer") != "torch.optim.AdamW" or not step.isdecimal() or int(step) < 1:
        raise UsageError(f"{file}: no state of AdamW after a step; give a checkpoint of train, or --start {COLD}")
    return state, int(step)


def digest(job: Job, kind: str) -> str:
    """SHA-256 of the optimiser's state, or ``none``."""
    return hash_of([state_of(Path(str(job.settings.adapter)))]) if kind == WARM else "none"
