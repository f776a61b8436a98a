"""What ``analysis safety`` answers, gathered once: as one JSON object here, as text in ``report``, drawn in ``plots``.

answer = gathered(dataset, assessed, gate=None)
json.dumps(as_json(answer))
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from analysis import gate as gates
from analysis.errors import UsageError
from analysis.verdict import HARMFUL
from analysis.windows import Window, windows

FIGURES = (
    "relative_bias_squared",
    "standard_error",
    "lower",
    "upper",
    "cosine",
    "norm_ratio",
    "gain",
    "turn_squared",
    "samples_to_notice",
)
P_VALUES = ("p_safe", "p_harmful")
NEEDED = ("images_needed", "draws_needed")


@dataclass(frozen=True)
class Answer:
    """Every cell of ``assessed``; windows and decision are those of ``metric``.

    ``safe`` and ``harmful`` are windows in the sum over blocks, ``safe_in_every_block`` what its name says.
    """

    assessed: xr.Dataset
    metric: str
    images: int
    draws: int
    safe: list[Window]
    safe_in_every_block: list[Window]
    harmful: list[Window]
    decision: gates.Decision | None
    warnings: list[str]


def gathered(
    dataset: xr.Dataset,
    assessed: xr.Dataset,
    *,
    metric: str | None = None,
    gate: gates.Gate | None = None,
    every_block: bool = False,
    steps: int = 1,
) -> Answer:
    """Windows, decision and warnings of an assessed store, at ``metric`` or the store's first. Raises UsageError.

    steps: checkpoints at which the gate is asked.
    """
    metrics = assessed["metric"].values.tolist()
    if metric is not None and metric not in metrics:
        raise UsageError(f"metric {metric!r} is not in this store; it has {', '.join(metrics)}")
    chosen = metric or str(metrics[0])
    decision = None
    if gate is not None:
        grid = dataset["sigma"].values.tolist()
        decision = gates.decide(assessed, gate, metric=chosen, grid=grid, every_block=every_block, steps=steps)
    return Answer(
        assessed=assessed if metric is None else assessed.sel(metric=[metric]),
        metric=chosen,
        images=int(dataset["images_used"].values.max()),
        draws=dataset.sizes["draw"],
        safe=windows(assessed, chosen),
        safe_in_every_block=windows(assessed, chosen, every_block=True),
        harmful=windows(assessed, chosen, verdict=HARMFUL),
        decision=decision,
        warnings=json.loads(assessed.attrs["warnings"]),
    )


def as_json(answer: Answer, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One object for machines; what is unresolved is None, and there is no NaN or infinity in it."""
    attributes = answer.assessed.attrs
    arms = answer.assessed["arm"].values.tolist()
    decision = answer.decision
    return {
        **{name: attributes[name] for name in ("baseline", "population", "rule", "margin", "confidence", "level")},
        "control": attributes["control"] or None,
        "metric": answer.metric,
        "images": answer.images,
        "draws": answer.draws,
        "cells": _cells(answer.assessed),
        "windows": _per_arm(answer.safe, arms),
        "windows_in_every_block": _per_arm(answer.safe_in_every_block, arms),
        "harmful_windows": _per_arm(answer.harmful, arms),
        "gate": None if decision is None else gate_as_json(decision),
        "warnings": answer.warnings,
        "files": dict(files or {}),
    }


def gate_as_json(decision: gates.Decision) -> dict[str, Any]:
    """The answer of a gate."""
    return {
        "arm": decision.gate.arm,
        "lo": decision.gate.lo,
        "hi": decision.gate.hi,
        "sigmas": list(decision.sigmas),
        "verdict": decision.verdict,
        "reason": decision.reason,
    }


def _cells(assessed: xr.Dataset) -> list[dict[str, Any]]:
    attributes = assessed.attrs
    dims = ("metric", "sigma", "block", "arm")
    used = dict(zip(assessed["sigma"].values.tolist(), assessed["images_used"].values.tolist(), strict=True))
    stacked = assessed[[*FIGURES, "verdict", *P_VALUES, *NEEDED]].stack(cell=dims).transpose("cell")
    columns = {str(name): variable.values.tolist() for name, variable in stacked.data_vars.items()}
    labels = {dim: stacked[dim].values.tolist() for dim in dims}
    return [
        {
            **{dim: labels[dim][row] for dim in ("sigma", "block", "arm", "metric")},
            "population": attributes["population"],
            "images_used": used[labels["sigma"][row]],
            **{name: _finite(columns[name][row]) for name in FIGURES},
            "rule": attributes["rule"],
            "margin": attributes["margin"],
            "verdict": columns["verdict"][row],
            **{name: _finite(columns[name][row]) for name in P_VALUES},
            **{name: _whole(columns[name][row]) for name in NEEDED},
        }
        for row in range(stacked.sizes["cell"])
    ]


def _per_arm(found: list[Window], arms: list[str]) -> dict[str, list[dict[str, Any]]]:
    return {
        arm: [
            {"lo": window.lo, "hi": window.hi, "sigmas": list(window.sigmas), "claim": window.claim}
            for window in found
            if window.arm == arm
        ]
        for arm in arms
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _whole(value: float) -> int | None:
    return round(value) if math.isfinite(value) else None
