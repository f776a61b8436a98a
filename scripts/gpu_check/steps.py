"""Training steps with and without determinism, each run in a process of its own, and twins compared."""

import json
from pathlib import Path

from size import Size, not_run, peak_bytes

from analysis.file_pairs import compared
from analysis.run_folder import ADAPTER
from train.job import begin, prepare
from train.memory_of_run import memory_of
from train.run import run
from train.settings import Settings

WITHIN = 1.5  # of the estimate


def settings_of(size: Size, *, deterministic: bool, attention: str = "sdpa", steps: int | None = None) -> Settings:
    return Settings(
        model=size.model(), weights="bf16", deterministic=deterministic, steps=steps or size.steps, rank=16,
        attention=attention, device=size.device, checkpoint_every=0, learning_rate=1e-3, threads=1,
    )  # fmt: skip


def taken(size: Size, name: str, *, deterministic: bool, **how: object) -> dict[str, object]:
    """A run into the folder ``name``. Its rate is of the steps alone, the first left out, without the certificate."""
    settings = settings_of(size, deterministic=deterministic, **how)  # pyright: ignore[reportArgumentType]
    out = size.folder / name
    begin(settings)
    told = memory_of(prepare(settings, size.latents())).total
    run(settings, out, resuming=False, latents=size.latents())
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    seconds = sum(line["seconds"] for line in lines[1:])
    found: dict[str, object] = {
        "steps": len(lines),
        "it/s": round((len(lines) - 1) / seconds, 2) if seconds else None,
        "attention": lines[-1]["attention_calls"],
    }
    peak, within = peak_bytes(size.device), True
    if told is not None:
        found["GiB told"] = round(told / 2**30, 2)
        if peak is not None:
            found["GiB at most"] = round(peak / 2**30, 2)
            within = 1 / WITHIN < peak / told < WITHIN
    return {"state": "passed" if within else "failed", **found}


def twins(size: Size) -> dict[str, object]:
    """Tensors that differ between runs that nothing sets apart; it passes where none does under determinism."""
    found: dict[str, object] = {}
    for name in ("strict", "free"):
        places = size.folder / name / ADAPTER, size.folder / f"{name} again" / ADAPTER
        if all(place.exists() for place in places):
            found[f"{name}, differing tensors"] = differing(*places)
    if "strict, differing tensors" not in found:
        return not_run("there are no two deterministic runs to compare")
    return {"state": "failed" if found["strict, differing tensors"] else "passed", **found}


def differing(a: Path, b: Path) -> int:
    """How many tensors of two files differ."""
    return sum(len(pair.tensors.differences) for pair in compared(a, b).files)
