"""The runs that a study asks for: where each one goes, its command, and whether it is done.

OUT/VARIANT/ARM, OUT/VARIANT/ARM-twin1 and so on; OUT/ARM without variants
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from analysis.errors import UsageError
from analysis.run_folder import ADAPTER, SUMMARY, read_provenance
from train.settings import Settings, shown
from train.study.file import Entry, Study, named_by, run_names

# What run.json holds as a hash or as part of the environment; as text it stands in the run's command.
NOT_A_RECORDED_SETTING = ("model", "latents", "adapter", "threads")
OF_THE_ADAPTER = ("rank", "alpha")  # recorded as the file has them


@dataclass(frozen=True)
class Run:
    """One run. name: its folder below OUT, such as racing/native-twin1; twin: 0 for the first of an arm."""

    name: str
    settings: Settings
    twin: int = 0


def runs_of(study: Study) -> list[Run]:
    """All runs, variant after variant, in the order of the file."""
    runs: list[Run] = []
    for variant in study.variants or (Entry(where=""),):
        for arm in study.arms:
            prefix = f"{variant.name}/" if variant.name else ""
            with named_by(f"{study.file}: run {prefix}{arm.name}", study.file):
                settings = resolved(study.shared, variant, arm)
            runs += [Run(prefix + name, settings, twin) for twin, name in enumerate(run_names(arm))]
    return runs


def resolved(*entries: Entry) -> Settings:
    """Settings of tables of which a later one wins. Where none says otherwise a run has one thread."""
    found: dict[str, Any] = {"threads": 1}
    for entry in entries:
        found |= entry.settings
    return Settings(**found)


def command(settings: Settings, folder: Path) -> list[str]:
    """The command line that makes the run, or goes on with it. Only what differs from the defaults is given.

    It is recorded in run.json, so a shell can repeat it. The folder is its last word.
    """
    words = ["train"]
    for each in fields(Settings):
        value = getattr(settings, each.name)
        if value is True:
            words.append(shown(each.name))
        elif value != each.default:
            words += [shown(each.name), str(value)]
    return [*words, "--resume", "--out", str(folder)]


def is_done(run: Run, folder: Path) -> bool:
    """Whether ``folder`` holds this very run, finished. In any doubt not: its own process then finds out.

    Compared are the recorded settings and the command that recorded them. Model, pictures and adapter are compared as
    they were named; that the files of that name are still the same is not looked at.
    """
    try:
        made = read_provenance(folder)
        steps = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["steps"]
        asked, recorded = command(run.settings, folder), shlex.split(made.command)
        others = NOT_A_RECORDED_SETTING + (OF_THE_ADAPTER if run.settings.adapter else ())
        settings, kept = (
            {name: value for name, value in of.items() if name not in others}
            for of in (asdict(run.settings), made.settings)
        )
        return (
            (folder / ADAPTER).is_file()
            and kept == settings
            and recorded[:-1] == asked[:-1]
            and steps == run.settings.steps
        )
    except (UsageError, OSError, ValueError, TypeError, KeyError):
        return False


def differing(run: Run, base: Settings) -> str:
    """What sets a run apart from the shared settings, in a few words."""
    ours, shared = asdict(run.settings), asdict(base)
    words = [f"{name} = {_text(value)}" for name, value in ours.items() if value != shared[name]]
    told = ", ".join(words) or "the shared settings"
    return f"{told}; twin {run.twin}" if run.twin else told


def _text(value: Any) -> str:
    return "by default" if value is None else json.dumps(value, ensure_ascii=False)


def plan(runs: Sequence[Run], base: Settings, out: Path) -> str:
    """What ``--dry-run`` prints: a line a run, and the sum."""
    width = max(len(run.name) for run in runs)
    left = [run for run in runs if not is_done(run, out / run.name)]
    lines = [
        f"{run.name:{width}}  {run.settings.steps} steps  {differing(run, base)}" + ("" if run in left else "  (done)")
        for run in runs
    ]
    total = f"{len(runs)} runs, {steps_of(runs)} steps, in {out}"
    done = f"; {len(left)} runs of at most {steps_of(left)} steps are left" if len(left) < len(runs) else ""
    return "\n".join([*lines, total + done])


def steps_of(runs: Sequence[Run]) -> int:
    """Of all together."""
    return sum(run.settings.steps for run in runs)
