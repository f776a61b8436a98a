"""Where a store comes from: what was asked, with which code, on which data, where.

Kept in the attributes of everything that is written, as text and numbers (mappings as JSON), so that any reader of the
file can see it and a resumed run can compare it with its own::

    found = differences(now, stored)      # ["setting seed is 1, it was 0"]
"""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

DISTRIBUTION = "sigma-probes"


@dataclass(frozen=True)
class Code:
    """Version of the distribution and, in a checkout, the commit ("+" after it: with uncommitted changes)."""

    version: str
    commit: str | None = None


@dataclass(frozen=True)
class Provenance:
    """Origin of one store.

    ``command`` is the command line as typed. ``settings`` holds every resolved setting that can change a number.
    ``hashes`` maps model, adapter and latents to the hash of what was read. ``environment`` is what the trainer reports
    of device and versions. ``certificate`` is the evidence of determinism, if any was taken.
    """

    command: str
    settings: Mapping[str, Any]
    code: Code
    hashes: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    certificate: Mapping[str, Any] | None = None

    def to_attributes(self) -> dict[str, str]:
        """Attributes as text: mappings in JSON with sorted keys. Raises TypeError or ValueError for what JSON lacks."""
        return {
            "command": self.command,
            "settings": _to_json(self.settings),
            "code_version": self.code.version,
            "code_commit": self.code.commit or "",
            "hashes": _to_json(self.hashes),
            "environment": _to_json(self.environment),
            "certificate": _to_json(self.certificate),
        }

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> "Provenance":
        """Inverse of ``to_attributes``. Raises KeyError for a missing attribute, ValueError for broken JSON."""
        if not all(isinstance(attributes[name], str) for name in ("command", "code_version", "code_commit")):
            raise ValueError("command, code_version and code_commit are texts")
        return cls(
            command=attributes["command"],
            settings=json.loads(attributes["settings"]),
            code=Code(attributes["code_version"], attributes["code_commit"] or None),
            hashes=json.loads(attributes["hashes"]),
            environment=json.loads(attributes["environment"]),
            certificate=json.loads(attributes["certificate"]),
        )


def differences(now: Provenance, stored: Provenance) -> list[str]:
    """One line for each setting, hash and environment entry that differs, in that order and by name.

    The command line, the code and the certificate are not compared: they may differ while every number stays the same.
    """
    lines = []
    for kind, one, other in (
        ("setting", now.settings, stored.settings),
        ("hash", now.hashes, stored.hashes),
        ("environment", now.environment, stored.environment),
    ):
        lines += _differing(kind, json.loads(_to_json(one)), json.loads(_to_json(other)))
    return lines


def _differing(kind: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """A line for each entry that differs; of a group that both have, for each of its own."""
    for name in sorted({*ours, *theirs}):
        one, other = ours.get(name), theirs.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differing(f"{kind} {name}", one, other)
        elif name not in ours or name not in theirs or one != other:
            yield f"{kind} {name} is {_shown(ours, name)}, it was {_shown(theirs, name)}"


def this_code() -> Code:
    """Version and commit of the code that runs. The commit is None outside a checkout or without git."""
    try:
        version = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        version = "unknown"
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return Code(version)
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return Code(version)
    return Code(version, commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else ""))


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def _to_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


LONG = 8
"""Entries beyond which a list is told by its ends."""


def _shown(entries: Mapping[str, Any], name: str) -> str:
    if name not in entries:
        return "absent"
    value = entries[name]
    if isinstance(value, list) and len(value) > LONG:
        return f"{len(value)} entries, {json.dumps(value[0])} to {json.dumps(value[-1])}"
    return "a group of settings" if isinstance(value, dict) else json.dumps(value)
