"""Conducting a study: what is left is started, so many runs at a time, and what failed is told at the end."""

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from analysis import lock
from analysis.disk import naming_the_disk
from analysis.errors import Refused, UsageError
from train import places
from train.study import file, runs
from train.study.process import RunProcess
from train.study.progress import Progress
from train.study.runs import Run

TICK = 0.1  # seconds between two looks at the running processes
NAMED = 5  # failed runs in the last line; the lines above it have them all


def study(path: Path, out: Path | None, *, jobs: int, dry_run: bool) -> None:
    """The command ``train study``. Raises UsageError for a bad file, and as ``report`` does for runs that failed."""
    asked = file.read(path)
    all_runs = runs.runs_of(asked)
    out = Path("runs") / path.stem if out is None else out
    left = [run for run in all_runs if not runs.is_done(run, out / run.name)]
    if left or dry_run:
        from train.study import grammar

        grammar.check(asked)
    if dry_run:
        print(runs.plan(all_runs, runs.resolved(asked.shared), out))
        return
    progress = Progress()
    for run in all_runs:
        if run not in left:
            progress.say(f"{run.name}: its {run.settings.steps} steps were done before")
    if left:
        places.check_run(out)
        with naming_the_disk(out):
            out.parent.mkdir(parents=True, exist_ok=True)
        with lock.writing(out):
            report(conducted(left, out, jobs, progress), len(all_runs), progress)


def conducted(left: Sequence[Run], out: Path, jobs: int, progress: Progress) -> list[RunProcess]:
    """Make the runs, ``jobs`` at a time; the processes that failed. Whatever happens, none is left running."""
    waiting, running, failed = deque(left), list[RunProcess](), list[RunProcess]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(RunProcess(waiting.popleft(), out))
                progress.begin(running[-1].run, running[-1].folder)
            time.sleep(TICK)
            for process in list(running):
                over = process.has_ended()
                progress.follow(process.run, process.folder)
                if over:
                    running.remove(process)
                    process.close()
                    failed += [process] if process.failure() else []
                    progress.end(process.run, outcome(process))
    finally:
        progress.close()
        for process in running:
            process.stop()
        for process in running:
            process.close()
    return failed


def outcome(process: RunProcess) -> str:
    """Of a process that has ended, in a few words."""
    if process.failure():
        return f"failed after {process.seconds:.0f} s"
    return f"{process.run.settings.steps} steps, {process.seconds:.0f} s"


def report(failed: Sequence[RunProcess], of: int, progress: Progress) -> None:
    """A line for each run that failed. Then raises, if any did: Refused where all were refused, else UsageError."""
    if not failed:
        return
    for process in failed:
        progress.say(f"{process.run.name} failed: {process.failure()} ({process.log}{process.unlogged})")
    names = [process.run.name for process in failed]
    told = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    refused = all(process.process.returncode == Refused.exit_code for process in failed)
    raise (Refused if refused else UsageError)(
        f"{len(failed)} of {of} runs failed: {told}; each is told above, and the same command goes on with them"
    )
