"""What ``analysis safety`` answers at every step of a store, gathered once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import xarray as xr

from analysis import answer, gate
from analysis.answer import Answer
from analysis.errors import UsageError
from analysis.steps import at_step, steps_of

WINDOWS = ("windows", "windows_in_every_block", "harmful_windows")


@dataclass(frozen=True)
class Answers:
    """by_step: in the order of training; lacking: steps of which no cell is done yet."""

    by_step: Mapping[int, Answer]
    lacking: tuple[int, ...] = ()

    @property
    def first(self) -> Answer:
        """The first step's, for what is the same at all."""
        return next(iter(self.by_step.values()))

    @property
    def decision(self) -> gate.Decision | None:
        """The gate's, over all steps."""
        decisions = {step: one.decision for step, one in self.by_step.items() if one.decision is not None}
        return gate.over_steps(decisions, self.lacking) if decisions else None

    @property
    def warnings(self) -> list[str]:
        """Of every step, and of those that are left out."""
        left_out = [f"after {step} steps no cell is done, left out" for step in self.lacking]
        return left_out + [f"after {step} steps: {line}" for step, one in self.by_step.items() for line in one.warnings]


def answers(dataset: xr.Dataset, ask: Callable[[xr.Dataset], Answer]) -> Answers:
    """``ask`` of every step that has a done cell. UsageError where none has."""
    parts = {step: at_step(dataset, step) for step in steps_of(dataset)}
    begun = {step: part for step, part in parts.items() if part["done"].values.any()}
    if not begun:
        raise UsageError("no cell of this store is done; resume the sweep that writes it")
    return Answers(
        {step: ask(part) for step, part in begun.items()}, tuple(step for step in parts if step not in begun)
    )


def as_json(found: Answers, files: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One object, as of one step, with ``steps``; every cell and every window has its ``step``."""
    told = {step: with_step(answer.as_json(one), step) for step, one in found.by_step.items()}
    every = list(told.values())
    decision = found.decision
    joined: dict[str, Any] = {
        "steps": list(found.by_step),
        "images": max(one["images"] for one in every),
        "cells": [cell for one in every for cell in one["cells"]],
        "gate": None if decision is None else answer.gate_as_json(decision) | {"steps": list(found.by_step)},
        "warnings": found.warnings,
        "files": dict(files or {}),
    }
    for name in WINDOWS:
        joined[name] = {arm: [window for one in every for window in one[name][arm]] for arm in every[0][name]}
    return every[0] | joined


def with_step(told: dict[str, Any], step: int) -> dict[str, Any]:
    """The object of one step with it in every cell and window."""
    out = told | {"steps": [step], "cells": [{"step": step, **cell} for cell in told["cells"]]}
    for name in WINDOWS:
        out[name] = {arm: [{"step": step, **window} for window in own] for arm, own in told[name].items()}
    return out
