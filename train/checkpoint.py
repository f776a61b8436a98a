"""Checkpoints of a run: adapter and optimiser state after a step, whole or not there at all.

A checkpoint is written beside its place and renamed, so a kill leaves the ones before it. It holds the SHA-256 of its
files, so that none is gone on with that a disk or a person has changed.
"""

import hashlib
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file

from analysis.disk import naming_the_disk, synchronise
from analysis.errors import UsageError
from analysis.run_folder import ADAPTER, DIGESTS, OPTIMIZER, checkpoint_folder
from train import adapter, optimizer, record, tensors_file
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
    """Adapter and optimiser state as two files, and their digests."""
    adapter.save(into / ADAPTER, job.parameters, job.lora)
    state = optimizer.state_of(job.adamw, job.parameters)
    about = {"optimizer": "torch.optim.AdamW", "implementation": job.settings.adamw, "step": str(step)}
    tensors_file.write(into / OPTIMIZER, state, about)
    record.write_json(into / DIGESTS, {name: sha256(into / name) for name in (ADAPTER, OPTIMIZER)})


def read(run: Path, job: Job, step: int) -> None:
    """Put the state after ``step`` steps into ``job``. UsageError for files that are damaged or of other shapes."""
    place = checkpoint_folder(run, step)
    check_digests(place)
    adapter.fill(job.parameters, place / ADAPTER)
    optimizer.restore(job.adamw, job.parameters, load_file(place / OPTIMIZER), step)


def check_digests(place: Path) -> None:
    """Raise UsageError where a file of a checkpoint is missing or not, to the byte, what was written."""
    for name in (ADAPTER, OPTIMIZER):
        file, why = place / name, "its SHA-256 is another"
        try:
            intact = json.loads((place / DIGESTS).read_text(encoding="utf-8"))[name] == sha256(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            intact, why = False, str(error)
        if not intact:
            raise UsageError(f"{file} is not what the run wrote ({why}): remove {place} to go on from before it")


def sha256(file: Path) -> str:
    """Of its bytes."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
