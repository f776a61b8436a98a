"""What ``analysis endpoints`` is given: folders of runs, or LoRA files, with names that tell them apart."""

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.errors import Refused, UsageError
from analysis.provenance import differences
from analysis.run_folder import RUN, RunFolder, checkpoint_steps, open_run

BESIDES = ("arm", "checkpoint_every", "format")
"""Settings that do not make another command: what is compared, and how often it was written down."""

SWITCH, THREADS = "switch ", "switch threads"
"""Switches are recorded with the environment. All but the threads follow from how the run was asked for."""


@dataclass(frozen=True)
class Source:
    """A run, or (``run`` None) a LoRA file or folder."""

    name: str
    path: Path
    run: RunFolder | None

    def files(self, step: int) -> tuple[Path, Path | None]:
        """LoRA files after ``step`` steps and of the start; None for a start of zero displacement."""
        if self.run is None:
            return self.path, None
        return self.run.adapter(step or self.run.checkpoints[-1]), self.run.start


def sources(paths: Sequence[Path]) -> list[Source]:
    """Runs and files by short names; a folder of runs, such as a study's, stands for all that are in it.

    UsageError for a path given twice, a run without a finished checkpoint, or fewer than two of them.
    """
    found = [place for path in paths for place in runs_within(path)]
    repeated = next((p for i, p in enumerate(found) if p.resolve() in [q.resolve() for q in found[:i]]), None)
    if repeated is not None:
        raise UsageError(f"{repeated} is given twice; give every run once")
    if len(found) < 2:
        raise UsageError(f"{paths[0]}: one run alone has nothing to be compared with; give two or more")
    names = distinct_names(found)
    runs = (open_run(path) if (path / RUN).is_file() else None for path in found)
    return [Source(name, path, run) for name, path, run in zip(names, found, runs, strict=True)]


def runs_within(path: Path) -> list[Path]:
    """``path`` itself, or the runs at any depth below it, in reading order."""
    if not path.is_dir() or (path / RUN).is_file():
        return [path]
    found = [file.parent for file in path.rglob(RUN)]
    for run in sorted(place for place in found if not checkpoint_steps(place)):
        print(f"warning: {run}: no finished checkpoint yet; left out", file=sys.stderr)
    runs = [open_run(place) for place in found if checkpoint_steps(place)]
    return [run.path for run in sorted(runs, key=reading_order)] or [path]


def reading_order(run: RunFolder) -> tuple[str, bool, int, str]:
    """Native runs first, then by how many steps were treated; the runs of each subfolder together."""
    return str(run.path.parent), run.treatment != "native", sum(run.treated), run.path.name


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as tell all of them apart."""
    parts = [path.resolve().parts for path in paths]
    by_count = (["/".join(part[-count:]) for part in parts] for count in range(1, max(map(len, parts)) + 1))
    return next(names for names in by_count if len(set(names)) == len(names))


def common_steps(found: Sequence[Source]) -> list[int]:
    """Checkpoints that all runs have; [0] where LoRA files are among them, beside which runs stand as they ended."""
    runs = [source.run for source in found if source.run is not None]
    if len(runs) < len(found):
        return [0]
    shared = set.intersection(*(set(run.checkpoints) for run in runs))
    if not shared:
        told = "; ".join(f"{s.name}: {', '.join(map(str, s.run.checkpoints[-3:]))}" for s in found[:3] if s.run)
        raise UsageError(f"no checkpoint that all runs have ({told}); train them to one number of steps")
    longest = max(runs, key=lambda run: run.checkpoints[-1])
    if max(shared) < longest.checkpoints[-1]:
        short = min(found, key=lambda source: source.run.checkpoints[-1] if source.run else 0)
        print(
            f"warning: compared after {max(shared)} steps, the last checkpoint that all runs have: {short.name} "
            f"has {short.run.checkpoints[-1] if short.run else 0}, {longest.path.name} {longest.checkpoints[-1]}",
            file=sys.stderr,
        )
    return sorted(shared)


def check_models(found: Sequence[Source]) -> None:
    """UsageError where runs are known to be of different base models."""
    known = [(s.name, s.run.provenance.hashes.get("model")) for s in found if s.run is not None]
    for name, digest in known[1:]:
        if digest != known[0][1]:
            raise UsageError(
                f"{known[0][0]} and {name} are adapters of different base models (their hashes differ); "
                "give runs of one model"
            )


def check_environments(found: Sequence[Source]) -> None:
    """Refused where runs were made in different environments; the first difference is named."""
    runs = [(s.name, s.run) for s in found if s.run is not None]
    for name, run in runs[1:]:
        first_name, first = runs[0]
        changed = differences(
            replace(run.provenance, settings={}, hashes={}, environment=environment_of(run)),
            replace(first.provenance, settings={}, hashes={}, environment=environment_of(first)),
        )
        if changed:
            told = changed[0].removeprefix("environment ").replace("it was", f"of {first_name}")
            raise Refused(
                f"{name} was made in another environment than {first_name}: {told}; "
                "--across-environments compares them, without verdicts"
            )


def environment_of(run: RunFolder) -> dict[str, Any]:
    """Device, versions and threads, without the switches, most of which ``--deterministic`` sets."""
    recorded = run.provenance.environment
    return {name: value for name, value in recorded.items() if name == THREADS or not name.startswith(SWITCH)}


def switches_of(run: RunFolder) -> dict[str, Any]:
    """The other part of what is recorded."""
    return {name: value for name, value in run.provenance.environment.items() if name.startswith(SWITCH)}


def command_of(run: RunFolder) -> str:
    """Digest of everything that twins share but the arm: settings, switches, model, adapter, data and code."""
    origin = run.provenance
    settings = {name: value for name, value in origin.settings.items() if name not in BESIDES}
    code = [origin.code.version, origin.code.commit]
    return digest({"settings": settings, "switches": switches_of(run), "hashes": dict(origin.hashes), "code": code})


def digest(content: Any) -> str:
    """Short, of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
