"""A run's folder: made for a new run, or gone on with from its last checkpoint, if it is the same run."""

import sys
from dataclasses import replace
from pathlib import Path

from analysis.errors import Refused, UsageError
from analysis.provenance import Provenance, differences
from analysis.run_folder import checkpoint_steps, read_provenance
from train import checkpoint, record
from train.job import Job
from train.placement import depends_on_steps

FREE = ("steps", "checkpoint_every", "format")  # may change from one part of a run to the next


def open_run(out: Path, job: Job, provenance: Provenance, *, resuming: bool) -> int:
    """Steps that are done in ``out``, whose state is then in ``job``; 0 for a folder that is new.

    Raises UsageError for a folder that holds anything and ``resuming`` is not asked for, or holds a run with other
    settings, which is named; Refused where a deterministic run would go on in another environment.
    """
    if not out.exists() or not any(out.iterdir()):
        if resuming:
            print(f"no run in {out} yet: beginning one", file=sys.stderr)
        out.mkdir(exist_ok=True)
        record.write_provenance(out, provenance)
        return 0
    if not resuming:
        raise UsageError(f"{out} is not empty: give --resume to go on with the run in it, or another --out")
    stored = read_provenance(out)
    done = max(checkpoint_steps(out), default=0)
    same_run(out, job, provenance, stored, done)
    if done:
        checkpoint.read(out, job, done)
    if provenance.settings != stored.settings:
        record.write_provenance(out, replace(provenance, certificate=stored.certificate))
    return done


def same_run(out: Path, job: Job, now: Provenance, stored: Provenance, done: int) -> None:
    """Raise where ``now`` is not the run that is ``stored`` in ``out``."""
    changed = differences(without_free(now), without_free(stored))
    numbers = [line for line in changed if not line.startswith("environment")]
    if numbers:
        raise UsageError(f"{out} holds another run: {numbers[0]}; use the same settings, or another --out")
    if changed and job.settings.deterministic:
        raise Refused(f"{out} was begun elsewhere: {changed[0]}; bits would differ, so go on where it was begun")
    if changed:
        print(f"warning: {out} was begun elsewhere: {changed[0]}", file=sys.stderr)
    planned = stored.settings["steps"]
    if job.settings.steps < done:
        raise UsageError(f"--steps {job.settings.steps}: {done} are done in {out}; ask for {done} or more")
    looks_ahead = depends_on_steps(job.arm) or job.settings.schedule != "constant"
    if job.settings.steps != planned and looks_ahead:
        raise UsageError(
            f"--steps {job.settings.steps}: {out} was planned for {planned}, on which its placement or schedule "
            f"depends; use --steps {planned}, or another --out"
        )


def without_free(provenance: Provenance) -> Provenance:
    """``provenance`` without the settings that may change."""
    return replace(provenance, settings={k: v for k, v in provenance.settings.items() if k not in FREE})
