"""What a run writes down besides tensors: how it was made, every step, and its sum (``analysis.run_folder``)."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from analysis.atomic import replacing
from analysis.disk import naming_the_disk, synchronise
from analysis.errors import UsageError
from analysis.provenance import Provenance
from analysis.run_folder import METRICS, RUN
from train.job import Job
from train.training_step import Outcome


def write_json(path: Path, content: Mapping[str, Any]) -> bool:
    """Write a JSON file to be read by people too, atomically; False where ``path`` holds just it already."""
    text = f"{json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    with replacing(path) as partial:
        partial.write_bytes(text)
    return True


def write_provenance(run: Path, provenance: Provenance) -> None:
    """Write ``run.json``."""
    write_json(run / RUN, asdict(provenance))


class StepLog:
    """``metrics.jsonl`` from ``step`` on: what an earlier process wrote beyond its last checkpoint is dropped.

    tokens, seconds, attention_calls: sums over every step of the run, whichever process took it.
    """

    def __init__(self, run: Path, step: int) -> None:
        self.path = run / METRICS
        self.tokens, self.seconds, self.attention_calls = 0, 0.0, Counter[str]()
        written = self.path.read_bytes() if self.path.exists() else b""
        lines = written.splitlines()[:step]
        for number, line in enumerate(lines, 1):
            self.count(line_read(line, number, self.path))
        if len(lines) < step:
            raise UsageError(f"{self.path}: {len(lines)} lines, {step} steps are done; {CHANGED}")
        kept = b"".join(line + b"\n" for line in lines)
        if written != kept:
            with replacing(self.path) as partial:
                partial.write_bytes(kept)
        self.file = self.path.open("a", encoding="utf-8", buffering=1)

    def add(self, line: Mapping[str, Any]) -> None:
        """One step."""
        with naming_the_disk(self.path):
            self.file.write(json.dumps(line, allow_nan=False) + "\n")
        self.count(line)

    def count(self, line: Mapping[str, Any]) -> None:
        """Add a step to the sums."""
        self.tokens += line["tokens"]
        self.seconds += line["seconds"]
        self.attention_calls.update(line["attention_calls"])

    def synchronise(self) -> None:
        """Wait until every line is on the disk."""
        synchronise(self.path)

    def close(self) -> None:
        self.file.close()


CHANGED = "the run was changed by hand, or its disk lost something: begin it again in another --out"


def line_read(line: bytes, number: int, path: Path) -> dict[str, Any]:
    """A line of ``metrics.jsonl``. UsageError where it is not the step of that ``number``, whole."""
    found: dict[str, Any] = {}
    try:
        found = json.loads(line)
        whole = found["step"] == number and {"tokens", "seconds", "attention_calls"} <= found.keys()
    except (ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise UsageError(f"{path}: line {number} is not step {number}, whole; {CHANGED}")
    return found


def line_of(job: Job, step: int, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """A step, counted from 1 here, as ``metrics.jsonl`` has it. seconds: wall-clock time of this step."""
    plan, latents = job.plan(step), job.source.latents
    lower = plan.demote or plan.demote_latent
    return {
        "step": step + 1,
        "sigma": outcome.sigmas.tolist(),
        "tier": lower.of(latents.tier) if lower else latents.tier,
        "treated": outcome.treated,
        **route_of(job, step),
        "loss": float(outcome.losses.mean()),
        "losses": outcome.losses.tolist(),
        "gradient_norm": outcome.norm,
        "learning_rate": job.adamw.param_groups[0]["lr"],
        "tokens": outcome.tokens,
        "attention_calls": outcome.calls.summary(),
        "seconds": round(seconds, 4),
    }


def route_of(job: Job, step: int) -> dict[str, Any]:
    """Which route of an arm of several treats the step, as it is written; None for a native step."""
    if len(job.arm.routes) < 2:
        return {}
    return {"route": job.arm.routes[job.schedule.route[step]].text if job.schedule.treated[step] else None}


def routes(job: Job) -> dict[str, Any]:
    """Window and dose of each route, where the arm has several."""
    if len(job.arm.routes) < 2:
        return {}
    found = []
    for place, (route, treated) in enumerate(
        zip(job.arm.routes, job.schedule.by_route(len(job.arm.routes)), strict=True)
    ):
        found.append(
            {
                "route": route.text,
                "window": [route.lo, route.hi],
                "eligible_steps": int((job.schedule.route == place).sum()),
                "treated_steps": int(treated.sum()),
            }
        )
    return {"routes": found}


def summary(job: Job, log: StepLog) -> dict[str, Any]:
    """Dose and cost of the whole run; steps are counted from 1. seconds: of all its steps, in all its processes."""
    first = job.schedule.first_treated
    return {
        "arm": job.arm.text,
        "window": [job.arm.lo, job.arm.hi],
        **routes(job),
        "steps": job.settings.steps,
        "eligible_steps": int(job.schedule.eligible.sum()),
        "treated_steps": int(job.schedule.treated.sum()),
        "first_treated_step": None if first is None else first + 1,
        "tokens": log.tokens,
        "trainable_parameters": sum(p.numel() for p in job.parameters.values()),
        "attention_calls": dict(log.attention_calls),
        "seconds": round(log.seconds, 3),
    }
