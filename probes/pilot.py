"""A pilot for ``probes plan`` where there is none: a small sweep over the first images, kept as a store of its own."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from analysis.errors import UsageError
from analysis.planning import Asked
from analysis.safety import FEWEST_DRAWS, FEWEST_IMAGES
from probes.grad import Settings, probe

DEFAULTS: Mapping[str, Any] = {
    "sigma_grid": "0.3:0.9:5",
    "images": 8,
    "draws": 4,
    "engine": "func",
    "model": "mini",
    "latents": None,
    "adapter": None,
    "weights": "fp32",
    "activation_checkpointing": False,
    "device": "auto",
}
OUT = Path("pilot.zarr")


def make(asked: Asked, given: Mapping[str, Any], default_arms: Sequence[str]) -> Path:
    """Run the pilot, or what is missing of it, and return its store; what the sweep says goes to standard error.

    given: what replaces ``DEFAULTS``, and ``out``. UsageError for a pilot that could not be planned from.
    """
    chosen = {**DEFAULTS, **given}
    out: Path = chosen.pop("out", OUT)
    if chosen["images"] < FEWEST_IMAGES:
        raise UsageError(
            f"--images {chosen['images']}: too few for a pilot, whose spread would say nothing; give {FEWEST_IMAGES} "
            "or more, better 8"
        )
    if asked.baseline in asked.arms:
        raise UsageError(f"--arm {asked.baseline}: the baseline, which every arm is compared with; give treatments")
    if asked.population == "corpus" and chosen["draws"] < FEWEST_DRAWS:
        raise UsageError(f"--draws {chosen['draws']}: population corpus needs {FEWEST_DRAWS} or more")
    if chosen["adapter"] is not None:
        chosen["adapter"] = (chosen["adapter"],)
    control = () if asked.control is None else (asked.control,)
    arms: tuple[str, ...] = tuple(dict.fromkeys((*(asked.arms or default_arms), *control)))
    settings = Settings(
        arms=arms,
        metrics=(asked.metric or "raw",),
        chunk=24,
        attention="sdpa",
        rank=16,
        seed=0,
        jobs=None,
        threads=None,
        memory=4.0,
        **chosen,
    )
    with redirect_stdout(sys.stderr):
        probe(settings, out, dry_run=False, json=False)
    return out
