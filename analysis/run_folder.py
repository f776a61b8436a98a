"""The folder of a training run: what lies where in it, and what it says of itself.

    RUN/run.json              command, settings, code, hashes, environment
    RUN/certificate.json      evidence of determinism, or why there is none
    RUN/metrics.jsonl         a line a step
    RUN/start.safetensors     the adapter it began from, unless that was a fresh one
    RUN/checkpoints/step-000100/adapter.safetensors, optimizer.safetensors, sha256.json
    RUN/adapter.safetensors, RUN/summary.json     at the end

``train`` writes it; whatever reads it begins here.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.errors import UsageError
from analysis.provenance import Code, Provenance

RUN, METRICS, SUMMARY, CERTIFICATE = "run.json", "metrics.jsonl", "summary.json", "certificate.json"
ADAPTER, OPTIMIZER, START = "adapter.safetensors", "optimizer.safetensors", "start.safetensors"
DIGESTS = "sha256.json"
_CHECKPOINT = re.compile(r"step-(\d{6,})")


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where the checkpoint after ``step`` optimiser steps lies."""
    return run / "checkpoints" / f"step-{step:06d}"


def checkpoint_steps(run: Path) -> list[int]:
    """The checkpoints that are there, first to last. An unfinished one has another name."""
    found = (_CHECKPOINT.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def read_provenance(run: Path) -> Provenance:
    """What ``run.json`` says. UsageError where ``run`` holds no run."""
    path = run / RUN
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Provenance(**(content | {"code": Code(**content["code"])}))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{run}: holds no run that train made ({path.name}: {error}); give another folder") from None


@dataclass(frozen=True)
class RunFolder:
    """A run as its folder tells of it; ``checkpoints`` are steps."""

    path: Path
    provenance: Provenance
    checkpoints: tuple[int, ...]
    certificate: Mapping[str, Any]
    summary: Mapping[str, Any]

    @property
    def treatment(self) -> str:
        """The arm, as it was asked for."""
        return str(self.provenance.settings["arm"])

    @property
    def deterministic(self) -> bool:
        """Whether determinism was asked for."""
        return bool(self.provenance.settings["deterministic"])

    @property
    def certified(self) -> bool:
        """Whether it was asked for and its certificate was granted, where the run was made."""
        found = self.certificate
        granted = found.get("granted") is True and not found.get("against") and bool(found.get("steps"))
        return self.deterministic and granted and found.get("environment") == self.provenance.environment

    @property
    def window(self) -> tuple[float, float]:
        """lo < sigma <= hi of the arm; NaN where the run has not ended."""
        lo, hi = self.summary.get("window") or (float("nan"), float("nan"))
        return float(lo), float(hi)

    @cached_property
    def treated(self) -> tuple[bool, ...]:
        """Of every step up to the last checkpoint, whether the arm treated it."""
        path = self.path / METRICS
        try:
            lines = path.read_text(encoding="utf-8").splitlines()[: max(self.checkpoints)]
            treated = tuple(bool(json.loads(line)["treated"]) for line in lines)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not a run's lines of metrics ({error}); give another folder") from None
        if len(treated) < max(self.checkpoints):
            raise UsageError(f"{path}: {len(treated)} lines, {max(self.checkpoints)} steps are done; give another run")
        return treated

    def adapter(self, step: int) -> Path:
        """File of the adapter after ``step`` steps."""
        return checkpoint_folder(self.path, step) / ADAPTER

    @property
    def start(self) -> Path | None:
        """File of the adapter it began from; None for a fresh one, whose displacement is zero."""
        file = self.path / START
        return file if file.exists() else None


def open_run(path: Path) -> RunFolder:
    """Read a run's folder. UsageError if it holds no run, no finished checkpoint, or lacks the start it needs."""
    provenance = read_provenance(path)
    missing = [name for name in ("arm", "deterministic", "steps") if name not in provenance.settings]
    if missing:
        raise UsageError(f"{path / RUN}: setting {missing[0]} is missing; give the folder of a run that train made")
    steps = checkpoint_steps(path)
    if not steps:
        raise UsageError(f"{path}: no finished checkpoint yet; let the run go on (train --resume) and compare then")
    run = RunFolder(path, provenance, tuple(steps), _read(path / CERTIFICATE), _read(path / SUMMARY))
    if provenance.hashes.get("adapter") != "fresh" and run.start is None:
        raise UsageError(f"{path}: began from an adapter of which no {START} is kept; train it again to compare it")
    return run


def _read(path: Path) -> dict[str, Any]:
    """A JSON object, {} where the file is not there yet."""
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON ({error}); remove it, or give another run") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: not a JSON object; remove it, or give another run")
    return content
