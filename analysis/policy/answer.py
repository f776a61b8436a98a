"""What ``analysis policy`` answers: as one JSON object here, as text in ``report``, drawn in ``plots``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from analysis.answer import FIGURES
from analysis.estimate import CONFIDENCE
from analysis.policy.grammar import Policy
from analysis.policy.shares import Shares


@dataclass(frozen=True)
class Question:
    """What was asked; ``margin`` None asks for no verdict. samples: of an optimiser step."""

    sampler: str
    cost: str
    population: str
    rule: str
    margin: float | None
    baseline: str
    samples: int


@dataclass(frozen=True)
class Answer:
    """``policies``: all that were looked at, by text; ``total`` [policy]: their figures in the sum over blocks.

    ``named``: those that the user named; ``detail`` [block, policy]: figures in every block, of those and, where there
    are verdicts, of all thresholds of one arm. ``front``: those that no other beats. ``safe``: of each arm's
    thresholds, from the top, those that are safe in total and in every block; ``picked``: the fastest policy that is.
    """

    question: Question
    metric: str
    images: int
    draws: int
    units: int
    share: Shares
    policies: Mapping[str, Policy]
    total: xr.Dataset
    detail: xr.Dataset | None
    named: Sequence[str]
    front: Sequence[str]
    safe: Mapping[str, Sequence[str]]
    picked: str | None
    warnings: Sequence[str]


def unit_of(answer: Answer) -> str:
    """What the estimators count as independent."""
    return "fold of images" if answer.question.population == "images" else "draw"


def as_json(answer: Answer, files: Mapping[str, str]) -> dict[str, Any]:
    """One object for machines; what is unresolved is None, and there is no NaN or infinity in it."""
    told = {name: _told(answer, name) for name in (*answer.named, *answer.front, *filter(None, [answer.picked]))}
    return {
        **vars(answer.question),
        "confidence": CONFIDENCE,
        "metric": answer.metric,
        "images": answer.images,
        "draws": answer.draws,
        "units": answer.units,
        "unit": unit_of(answer),
        "uncovered": answer.share.uncovered,
        "policies": [told[name] for name in answer.named],
        "cells": _cells(answer),
        "front": [told[name] for name in answer.front],
        "policies_compared": len(answer.policies),
        "safe_thresholds": {arm: list(names) for arm, names in answer.safe.items()},
        "picked": None if answer.picked is None else told[answer.picked],
        "warnings": list(answer.warnings),
        "files": dict(files),
    }


def _told(answer: Answer, name: str) -> dict[str, Any]:
    routes, figures = answer.policies[name].routes, answer.total.sel(policy=name)
    return {
        "policy": name,
        "routes": [{"arm": route.arm, "lo": route.lo, "hi": route.hi} for route in routes],
        "treated": figures["treated"].item(),
        "speed_up": figures["speed_up"].item(),
        **_figures(figures),
    }


def _figures(figures: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {name: _finite(figures[name].item()) for name in FIGURES}
    if "verdict" in figures:
        needed = _finite(figures["units_needed"].item())
        found["verdict"] = figures["verdict"].item()
        found |= {name: _finite(figures[name].item()) for name in ("p_safe", "p_harmful")}
        found["images_or_draws_needed"] = None if needed is None else round(needed)
    return found


def _cells(answer: Answer) -> list[dict[str, Any]]:
    """Every block of the named policies and of the picked one."""
    if answer.detail is None:
        return []
    names = list(dict.fromkeys([*answer.named, *([answer.picked] if answer.picked else [])]))
    return [
        {"policy": name, "block": block, **_figures(answer.detail.sel(policy=name, block=block))}
        for name in names
        for block in answer.detail["block"].values.tolist()
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
