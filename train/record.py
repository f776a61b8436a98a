"""What a run writes down besides tensors: how it was made, every step, and its sum (``analysis.run_folder``)."""

import json
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


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file to be read by people too, atomically."""
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def write_provenance(run: Path, provenance: Provenance) -> None:
    """Write ``run.json``."""
    write_json(run / RUN, asdict(provenance))


class StepLog:
    """``metrics.jsonl`` from ``step`` on: what an earlier process wrote beyond its last checkpoint is dropped."""

    def __init__(self, run: Path, step: int) -> None:
        path = run / METRICS
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[:step] if path.exists() else []
        if len(lines) < step:
            raise UsageError(f"{path}: {len(lines)} lines, {step} steps are done; the run was changed by hand")
        with replacing(path) as partial:
            partial.write_text("".join(lines), encoding="utf-8")
        self.path, self.tokens = path, sum(json.loads(line)["tokens"] for line in lines)
        self.file = path.open("a", encoding="utf-8", buffering=1)

    def add(self, line: Mapping[str, Any]) -> None:
        """One step."""
        with naming_the_disk(self.path):
            self.file.write(json.dumps(line, allow_nan=False) + "\n")
        self.tokens += line["tokens"]

    def synchronise(self) -> None:
        """Wait until every line is on the disk."""
        synchronise(self.path)

    def close(self) -> None:
        self.file.close()


def line_of(job: Job, step: int, outcome: Outcome, seconds: float) -> dict[str, Any]:
    """A step, counted from 1 here, as ``metrics.jsonl`` has it. seconds: wall-clock time of this step."""
    plan, latents = job.plan(step), job.source.latents
    lower = plan.demote or plan.demote_latent
    return {
        "step": step + 1,
        "sigma": outcome.sigmas.tolist(),
        "tier": lower.of(latents.tier) if lower else latents.tier,
        "treated": outcome.treated,
        "loss": float(outcome.losses.mean()),
        "losses": outcome.losses.tolist(),
        "gradient_norm": outcome.norm,
        "learning_rate": job.adamw.param_groups[0]["lr"],
        "tokens": outcome.tokens,
        "seconds": round(seconds, 4),
    }


def summary(job: Job, tokens: int, attention: Mapping[str, int], seconds: float) -> dict[str, Any]:
    """Dose and cost of the whole run; steps are counted from 1. attention, seconds: of the last process alone."""
    first = job.schedule.first_treated
    return {
        "arm": job.arm.text,
        "window": [job.arm.lo, job.arm.hi],
        "steps": job.settings.steps,
        "eligible_steps": int(job.schedule.eligible.sum()),
        "treated_steps": int(job.schedule.treated.sum()),
        "first_treated_step": None if first is None else first + 1,
        "tokens": tokens,
        "trainable_parameters": sum(p.numel() for p in job.parameters.values()),
        "attention_calls": dict(attention),
        "seconds": round(seconds, 3),
    }
