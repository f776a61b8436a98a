"""Everything a horizon store says: separation, non-linearity, how far the ruler reaches and how fast runs part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.errors import UsageError
from analysis.horizon.growth import Growth, growth
from analysis.horizon.reach import LIMIT, End, Reach, interval, reach, saturated_from
from analysis.horizon.separation import length_ratio, nonlinearity, of_rounding, separation, squared_distances
from analysis.report import counted
from analysis.schema import TOTAL

if TYPE_CHECKING:
    import xarray as xr

Array = np.ndarray
OF_ROUNDING = 0.5
"""Of the limit of non-linearity: where rounding alone could make more, a non-linearity is left out."""


@dataclass(frozen=True)
class Answer:
    """Figures of the seeds that are done.

    figures: separation[seed, step, block, arm], nonlinearity, length_ratio, blurred[seed, step, block, dose] (whether
    rounding could make a non-linearity: both are NaN there), floor[seed, step, block], the block ``total`` first;
    reaches, saturated: by block and name of dose, of every dose whose half was run; growth: None where there are no
    jitters; about: attributes of the store.
    """

    figures: "xr.Dataset"
    reaches: Mapping[str, Mapping[str, Reach]]
    saturated: Mapping[str, int | None]
    growth: Growth | None
    about: Mapping[str, Any]

    @property
    def full(self) -> str:
        """The largest dose."""
        return self.doses[-1]

    @property
    def doses(self) -> list[str]:
        """Those with a half, growing."""
        return self.figures["dose"].values.tolist()

    @property
    def steps(self) -> list[int]:
        return self.figures["step"].values.tolist()

    @property
    def setting(self) -> str:
        """What was run, as far as the store says so: ``redraw, learning rate 0.0001, warm start, 3 seeds``."""
        named = [str(self.about["treatment"])] if "treatment" in self.about else []
        named += [f"learning rate {self.about['learning_rate']:g}"] if "learning_rate" in self.about else []
        named += [f"{self.about['start']} start"] if "start" in self.about else []
        return ", ".join([*named, counted(self.figures.sizes["seed"], "seed")])

    def jitter_separation(self) -> Array:
        """[runs, steps], of every jitter of every seed."""
        found = self.figures["separation"].sel(block=TOTAL).transpose("seed", "arm", "step").values
        positive = found[:, np.isnan(self.figures["arm_dose"].values)].reshape(-1, len(self.steps))
        return np.where(positive > 0, positive, np.nan)


def assess(dataset: "xr.Dataset") -> Answer:
    """The answer of a store's dataset. UsageError where no seed is done yet."""
    import xarray as xr

    done = dataset.isel(seed=np.flatnonzero(dataset["done"].values))
    if not done.sizes["seed"]:
        raise UsageError("no seed is done yet: run the same probes horizon again, it goes on where it was")
    gram, rounding = with_total(done["gram"].values), with_total(done["rounding"].values)
    dose = done["dose"].values
    names, steps = done["arm"].values.tolist(), done["step"].values.tolist()
    rungs = [place for place in range(2, len(names)) if dose[place] > 0]
    bent = np.stack([nonlinearity(gram, place, place - 1) for place in rungs], -1)
    squares = squared_distances(gram)
    by_rounding = of_rounding(squares[..., rungs], rounding[..., None], np.array(steps)[:, None, None])
    blurred = by_rounding > OF_ROUNDING * LIMIT
    ratio = np.stack([length_ratio(gram, place, place - 1) for place in rungs], -1)
    bent, ratio = (np.where(blurred, np.nan, figure) for figure in (bent, ratio))
    with np.errstate(divide="ignore", invalid="ignore"):
        floor = np.where(squares[..., 0] > 0, np.sqrt(rounding / squares[..., 0]), np.nan)
    blocks, of_doses = [TOTAL, *done["block"].values.tolist()], [names[place] for place in rungs]
    figures = xr.Dataset(
        {
            "separation": (("seed", "step", "block", "arm"), separation(gram)),
            "nonlinearity": (("seed", "step", "block", "dose"), bent),
            "length_ratio": (("seed", "step", "block", "dose"), ratio),
            "floor": (("seed", "step", "block"), floor),
            "blurred": (("seed", "step", "block", "dose"), blurred),
            "treated": (("seed", "step"), done["treated"].values),
            "arm_dose": (("arm",), dose),
        },
        {"seed": done["seed"].values, "step": steps, "block": blocks, "arm": names, "dose": of_doses},
    )
    reaches = {
        block: {name: reach(bent[:, :, b, d], steps) for d, name in enumerate(of_doses)}
        for b, block in enumerate(blocks)
    }
    saturated = {name: saturated_from(ratio[:, :, 0, d], steps) for d, name in enumerate(of_doses)}
    jitters = np.flatnonzero(np.isnan(dose))
    distance = np.sqrt(squares[:, :, 0])
    rate = None
    if jitters.size:
        rate = growth(distance[..., jitters], distance[..., 0], np.sqrt(rounding[:, :, 0]), steps)
    return Answer(figures, reaches, saturated, rate, done.attrs)


def with_total(values: Array) -> Array:
    """[seed, step, block, ...] with the sum over blocks in front of them."""
    return np.concatenate([values.sum(2, keepdims=True), values], axis=2)


def over_seeds(values: "xr.DataArray") -> tuple[Array, Array | None, Array | None]:
    """Geometric mean over seeds and its 95 % bounds, of positive figures [seed, step]; zeros are left out."""
    positive = values.transpose("seed", "step").values
    return interval(np.where(positive > 0, positive, np.nan))


def as_json(answer: Answer, files: Mapping[str, str]) -> dict[str, Any]:
    """One JSON object; what is not known is null."""
    figures = answer.figures
    cells = []
    for block in figures["block"].values.tolist():
        at = figures.sel(block=block)
        for arm, dose in zip(figures["arm"].values.tolist()[1:], figures["arm_dose"].values.tolist()[1:], strict=True):
            bounds = [over_seeds(at["separation"].sel(arm=arm))]
            if arm in answer.doses:
                bounds += [over_seeds(at[name].sel(dose=arm)) for name in ("nonlinearity", "length_ratio")]
            for place, step in enumerate(answer.steps):
                cell = {"step": step, "block": block, "arm": arm, "dose": number(dose)}
                for name, found in zip(("separation", "nonlinearity", "length_ratio"), bounds, strict=False):
                    parts = zip((name, f"{name}_lower", f"{name}_upper"), found, strict=True)
                    cell |= {part: None if value is None else number(value[place]) for part, value in parts}
                cells.append(cell)
    return {
        **{name: answer.about.get(name) for name in ("treatment", "start", "learning_rate")},
        "seeds": figures["seed"].values.tolist(),
        "steps": answer.steps,
        "limit": LIMIT,
        "horizons": [horizon_json(answer, block, dose) for block in answer.reaches for dose in answer.doses],
        "growth": None if answer.growth is None else vars(answer.growth),
        "floor": [number(value) for value in over_seeds(figures["floor"].sel(block=TOTAL))[0]],
        "cells": cells,
        "files": dict(files),
    }


def horizon_json(answer: Answer, block: str, dose: str) -> dict[str, Any]:
    """Of one block and dose. ``open``: the ruler still held at the last step."""
    found = answer.reaches[block][dose]

    def told(end: End | None) -> dict[str, Any] | None:
        return None if end is None else {"step": end.step, "open": end.open}

    return {
        "block": block,
        "dose": dose,
        "horizon": told(found.horizon),
        "lower": told(found.lower),
        "upper": told(found.upper),
        "by_seed": [told(end) for end in found.by_seed],
        **({"saturated_from": answer.saturated[dose]} if block == TOTAL else {}),
    }


def number(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if np.isfinite(value) else None
