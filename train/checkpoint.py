"""Checkpoints of a run: adapter and optimiser state after a step, whole or not there at all.

A checkpoint is written beside its place and renamed, so a kill leaves the ones before it.
"""

import shutil
from pathlib import Path

from safetensors import SafetensorError, safe_open

from analysis.disk import naming_the_disk, synchronise
from analysis.errors import UsageError
from analysis.run_folder import ADAPTER, OPTIMIZER, checkpoint_folder
from train import adapter, optimizer, tensors_file
from train.job import Job


def write(run: Path, job: Job, step: int) -> None:
    """The state after ``step`` steps, atomically."""
    place = checkpoint_folder(run, step)
    partial = place.with_name(f".{place.name}.partial")
    with naming_the_disk(place):
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write_state(partial, job, step)
        synchronise(partial)
        partial.replace(place)
        synchronise(place.parent)


def write_state(into: Path, job: Job, step: int) -> None:
    """Adapter and optimiser state as two files."""
    adapter.save(into / ADAPTER, job.parameters, job.lora)
    state = optimizer.state_of(job.adamw, job.parameters)
    about = {"optimizer": "torch.optim.AdamW", "implementation": job.settings.adamw, "step": str(step)}
    tensors_file.write(into / OPTIMIZER, state, about)


def read(run: Path, job: Job, step: int) -> None:
    """Put the state after ``step`` steps into ``job``. UsageError for files that are damaged or of other shapes."""
    place = checkpoint_folder(run, step)
    adapter.fill(job.parameters, place / ADAPTER)
    file = place / OPTIMIZER
    try:
        with safe_open(file, framework="pt") as opened:
            state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise UsageError(
            f"{file}: not a readable safetensors file ({error}); remove {place} to go on before it"
        ) from None
    optimizer.restore(job.adamw, job.parameters, state, step)
