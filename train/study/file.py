"""The file of a study: settings that all runs share, variants of them, and arms with their twins.

[settings]                  # anything that train --config takes
steps = 400
[[variants]]                # may be left out; each one takes all arms
name = "racing"
attention = "racing"
[[arms]]
name = "s05"
arm = "demote:56@0.5"       # any other setting too; an arm's wins over a variant's, and that over the shared one
twins = 3                   # runs of the very same command besides the first
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from analysis.errors import UsageError
from train.settings import Settings, check, typed

TABLES = ("settings", "variants", "arms")
RULES = {each.name: each.metadata for each in fields(Settings)}
MOST_TWINS = 100
FOLDER_NAME = re.compile(r"(?!\.|\s)[^/\\\x00-\x1f\x7f]{1,60}(?<!\s)")


@dataclass(frozen=True)
class Entry:
    """One table of the file. where: the file and the table, as an error names them; twins: of an arm."""

    where: str
    name: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    twins: int = 0


@dataclass(frozen=True)
class Study:
    """What the file says, each value of the right type and in its range."""

    file: Path
    shared: Entry
    variants: tuple[Entry, ...]
    arms: tuple[Entry, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        return (self.shared, *self.variants, *self.arms)


def read(file: Path) -> Study:
    """The study in ``file``. A UsageError names the file, the entry and what it takes."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: not a readable TOML file ({error})") from None
    for name in content:
        if name not in TABLES:
            raise UsageError(
                f"{file}: unknown table {name}; the nearest is {nearest(name, TABLES)} (a study takes [settings], "
                "[[variants]] and [[arms]]; settings that all runs share stand below [settings])"
            )
    shared = content.get("settings", {})
    if type(shared) is not dict:
        raise UsageError(f"{file}: settings = {shared!r}; write a table, [settings]")
    study = Study(
        file,
        Entry(f"{file}: [settings]", settings=settings_of(file, f"{file}: [settings]", shared, ())),
        entries(file, "variants", content, variant),
        entries(file, "arms", content, arm),
    )
    if not study.arms:
        raise UsageError(f'{file}: no arms; write at least one [[arms]] with a name, such as name = "native"')
    refuse_shared_folders(study)
    return study


def entries(file: Path, kind: str, content: Mapping[str, Any], make: Callable[..., Entry]) -> tuple[Entry, ...]:
    """The tables of ``[[variants]]`` or ``[[arms]]``, each with a name of its own."""
    tables = content.get(kind, [])
    if type(tables) is not list or any(type(table) is not dict for table in tables):
        raise UsageError(f"{file}: {kind} is no list of tables; write [[{kind}]] above each")
    made: list[Entry] = []
    for i, table in enumerate(tables, 1):
        entry = make(file, named(f"{file}: {kind}[{i}]", table), table)
        for j, other in enumerate(made, 1):
            if other.name == entry.name:
                raise UsageError(f"{entry.where}: {kind}[{j}] has this name too; choose another")
        made.append(entry)
    return tuple(made)


def named(where: str, table: Mapping[str, Any]) -> str:
    """``where`` with the table's name, which must do as the name of a folder."""
    name = table.get("name")
    if type(name) is not str:
        given = "no name" if name is None else f"name = {name!r}"
        raise UsageError(f'{where}: {given}; it takes a text, such as name = "native"')
    if not FOLDER_NAME.fullmatch(name):
        raise UsageError(
            f"{where} {name!r}: no name for a folder; it takes 1 to 60 characters without slashes, "
            "no dot in front, and no space at an end"
        )
    return f'{where} "{name}"'


def variant(file: Path, where: str, table: Mapping[str, Any]) -> Entry:
    """One of ``[[variants]]``."""
    return Entry(where, table["name"], settings_of(file, where, table, ("name",)))


def arm(file: Path, where: str, table: Mapping[str, Any]) -> Entry:
    """One of ``[[arms]]``."""
    twins = table.get("twins", 0)
    if type(twins) is not int or not 0 <= twins <= MOST_TWINS:
        raise UsageError(f"{where}: twins = {twins!r}; it takes a whole number, 0 to {MOST_TWINS}")
    return Entry(where, table["name"], settings_of(file, where, table, ("name", "twins")), twins)


def settings_of(file: Path, where: str, table: Mapping[str, Any], own: Sequence[str]) -> dict[str, Any]:
    """The settings in a table, which may hold its ``own`` keys besides; types, ranges and choices are checked."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name in own:
            continue
        if name not in RULES:
            near = nearest(name, (*own, *RULES))
            raise UsageError(f"{where}: unknown setting {key}; the nearest is {near} (train --help lists them)")
        if name in found:
            raise UsageError(f"{where}: {name} is given twice, as {key} too; leave one")
        with named_by(where, file):
            found[name] = typed(file, name, value)
            check(name, found[name], RULES[name])
    return found


@contextmanager
def named_by(where: str, file: Path) -> Iterator[None]:
    """Errors of the trainer's checks begin with the entry, and not with the file alone."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {str(error).removeprefix(f'{file}: ')}") from None


def nearest(name: str, known: Sequence[str]) -> str:
    """The known name most like ``name``."""
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]


def run_names(entry: Entry) -> list[str]:
    """Of an arm: its own name, then those of its twins."""
    return [entry.name, *(f"{entry.name}-twin{i}" for i in range(1, entry.twins + 1))]


def refuse_shared_folders(study: Study) -> None:
    """Raise where two arms would write to one place: a run takes NAME and NAME.log."""
    taken: dict[str, Entry] = {}
    for entry in study.arms:
        for name in run_names(entry):
            for place in (name, f"{name}.log"):
                if place in taken:
                    other = taken[place].where.removeprefix(f"{study.file}: ")
                    raise UsageError(f"{entry.where}: its {place} would also be one of {other}; choose another name")
                taken[place] = entry
