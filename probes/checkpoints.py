"""Which adapters a probe is taken at: a LoRA file, or checkpoints of one run (RUN: its last; RUN@STEP: a named one)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.errors import UsageError
from analysis.run_folder import ADAPTER, DIGESTS, checkpoint_folder, checkpoint_steps, read_provenance
from train.checkpoint import check_digests


@dataclass(frozen=True)
class Checkpoint:
    """An adapter's file and, where it is a run's, the folder of the run and the optimiser steps done."""

    adapter: Path
    run: Path | None = None
    step: int | None = None


def find(text: str) -> Checkpoint:
    """What ``text`` names; a file's existence is not looked at. UsageError for a run without such a checkpoint."""
    path = Path(text)
    run, at, step = text.rpartition("@")
    if path.is_dir():
        return of_run(path, None)
    if at and not path.exists() and Path(run).is_dir():
        if not (step.isascii() and step.isdecimal()):
            raise UsageError(f"--adapter {text}: after @ stands a checkpoint's step, such as {run}@100")
        return of_run(Path(run), int(step))
    return Checkpoint(path)


def find_all(texts: Sequence[str]) -> tuple[Checkpoint, ...]:
    """What several texts name, by step. UsageError unless it is one file, or different checkpoints of one run."""
    found = [find(text) for text in texts]
    if len(found) < 2:
        return tuple(found)
    for text, one in zip(texts, found, strict=True):
        if one.run is None:
            raise UsageError(f"--adapter {text}: a file among several; give several as RUN@STEP, of one run")
        assert found[0].run is not None
        if one.run.resolve() != found[0].run.resolve():
            raise UsageError(f"--adapter {text}: another run than {found[0].run}; several are checkpoints of one run")
        if [other.step for other in found].count(one.step) > 1:
            raise UsageError(f"--adapter {text}: step {one.step} is given twice; give each checkpoint once")
    return tuple(sorted(found, key=lambda one: one.step or 0))


def of_run(run: Path, step: int | None) -> Checkpoint:
    """The checkpoint of ``run`` after ``step`` steps, None: its last, as it was written."""
    if not (run / "run.json").exists():
        raise UsageError(f"--adapter {run}: a folder that holds no run of train; give a run's, or a LoRA file")
    read_provenance(run)
    there = checkpoint_steps(run)
    if not there:
        raise UsageError(f"--adapter {run}: the run has no finished checkpoint yet; let it go on (train --resume)")
    if step is not None and step not in there:
        raise UsageError(f"--adapter {run}@{step}: no such checkpoint; there: {', '.join(map(str, there))}")
    chosen = there[-1] if step is None else step
    folder = checkpoint_folder(run, chosen)
    check_digests(folder)
    return Checkpoint(folder / ADAPTER, run, chosen)


def check_pair(adapter: Path) -> None:
    """UsageError where an adapter or the state beside it is not, to the byte, what a run wrote there together."""
    if (adapter.parent / DIGESTS).is_file():
        check_digests(adapter.parent)
