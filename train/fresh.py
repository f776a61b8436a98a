"""The first steps of a run in new processes: what no repeat inside one process can show.

Kernels that were chosen by timing, and compiled code that came from a cache, are the same all through a process and
may differ in the next. So each process has a compile cache of its own, and empty.

    python -P -m train.fresh SETTINGS.toml FOLDER
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from analysis.errors import Refused, UsageError
from analysis.file_pairs import compared
from train.settings import Settings, resolve, toml

STEPS = 3
PROCESSES = 2
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


def agree(settings: Settings) -> tuple[dict[str, Any], list[str]]:
    """What the first steps of ``settings`` had in common in two new processes, and the findings against it."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder) / "settings.toml"
        asked.write_text(toml(settings), encoding="utf-8")
        places = [Path(folder) / f"process-{i}" for i in range(PROCESSES)]
        for place in places:
            first_steps(asked, place)
        found = compared(*(place / "states" for place in places))
    tensors = sum(pair.tensors.tensors for pair in found.files)
    against = []
    if not found.identical:
        pair = next(pair for pair in found.files if not pair.tensors.identical)
        name = pair.tensors.differences[0].name
        against.append(f"two new processes of one command differ, first in {name} after {pair.name.split('.')[0]}")
    return {"processes": PROCESSES, "steps": min(STEPS, settings.steps), "tensors": tensors}, against


def first_steps(asked: Path, place: Path) -> None:
    """Start a process that takes the first steps, and wait for it."""
    states, caches = place / "states", {name: str(place / name) for name in CACHES}
    states.mkdir(parents=True)
    # -P: the folder we are in may hold a train.py.
    command = [sys.executable, "-P", "-m", "train.fresh", str(asked), str(states)]
    done = subprocess.run(command, env=os.environ | caches, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refused(f"a new process could not take the first steps: {last}")


def take(asked: Path, states: Path) -> None:
    """In the new process: gradient, adapter and optimiser state after each of the first steps, as files."""
    from train import tensors_file
    from train.job import begin, prepare
    from train.state import gradients_of, snapshot
    from train.training_step import advance

    settings = resolve(asked, {})
    begin(settings)
    job = prepare(settings)
    for step in range(min(STEPS, settings.steps)):
        advance(job, step)
        tensors_file.write(states / f"step-{step + 1}.safetensors", gradients_of(job) | snapshot(job), {})


if __name__ == "__main__":
    try:
        take(Path(sys.argv[1]), Path(sys.argv[2]))
    except (UsageError, Refused) as error:
        sys.exit(str(error))
