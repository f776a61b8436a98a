"""One arm, one range of sigma, one answer for scripts: safe there, harmful somewhere, or unresolved.

    gate = parse("demote:56@0.7:0.9", arms)
    decision = decide(assessed, gate, metric="raw", grid=dataset.sigma.values, every_block=False)
    sys.exit(decision.exit_code)

Both ends belong to the range. It is named before the data are seen, so safe at every sigma of it is an
intersection-union test: the largest p value, uncorrected. Harmful somewhere looks for the smallest, so it is corrected
for the number of looks (Bonferroni).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xarray as xr

from analysis.errors import UsageError
from analysis.schema import TOTAL
from analysis.verdict import HARMFUL, INACTIVE, LEVEL, SAFE, UNRESOLVED

EXIT_CODES = {SAFE: 0, HARMFUL: 1, UNRESOLVED: 3}
FORM = "ARM@lo:hi with 0 < lo <= hi <= 1, such as demote:56@0.7:0.9"
ROUNDING = 1e-9
"""Sigmas this close are the same: 0.3 + 3 * 0.05 is not 0.45."""


@dataclass(frozen=True)
class Gate:
    """The range lo <= sigma <= hi of one arm."""

    arm: str
    lo: float
    hi: float


@dataclass(frozen=True)
class Decision:
    """``sigmas`` are the grid points of the range, ``reason`` the answer in words."""

    gate: Gate
    verdict: str
    sigmas: tuple[float, ...]
    reason: str

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def parse(text: str, arms: Sequence[str]) -> Gate:
    """Read ``ARM@lo:hi``; the arm is one of ``arms``, whose own names may hold an @. Raises UsageError."""
    arm, at, window = text.rpartition("@")
    ends = window.split(":")
    try:
        lo, hi = (float(end) for end in ends)
    except ValueError:
        raise UsageError(f"gate {text!r} is not of the form {FORM}") from None
    if not (at and arm) or not (0.0 < lo <= hi <= 1.0):
        raise UsageError(f"gate {text!r} is not of the form {FORM}")
    if arm not in arms:
        raise UsageError(f"gate {text!r} asks for arm {arm!r}; this store has {', '.join(arms)}")
    return Gate(arm, lo, hi)


def decide(
    assessed: xr.Dataset, gate: Gate, *, metric: str, grid: Sequence[float], every_block: bool = False, steps: int = 1
) -> Decision:
    """Answer a gate from assessed cells; ``grid`` is every sigma of the store, also those not done yet.

    steps: checkpoints at which the same is asked, for ``over_steps``; looking for harm at all of them is corrected.

    It is about the sum over blocks, or with ``every_block`` about each block. A sigma of the range that is not done
    leaves it unresolved at best. Raises UsageError if the grid does not reach over the range or has no point in it.
    """
    sigmas = tuple(float(sigma) for sigma in grid if gate.lo - ROUNDING <= sigma <= gate.hi + ROUNDING)
    if not sigmas or gate.lo < grid[0] - ROUNDING or gate.hi > grid[-1] + ROUNDING:
        raise UsageError(
            f"gate {gate.arm}@{gate.lo:g}:{gate.hi:g} is not covered: the store's {len(grid)} sigmas reach from "
            f"{grid[0]:g} to {grid[-1]:g}, {len(sigmas)} of them in the range; probe that range first"
        )
    done = [sigma for sigma in assessed["sigma"].values.tolist() if sigma in sigmas]
    cells = assessed.sel(metric=metric, arm=gate.arm, sigma=done)
    cells = cells.drop_sel(block=TOTAL) if every_block else cells.sel(block=[TOTAL])
    where = "in every block" if every_block else "in the sum over blocks"
    idle = cells["sigma"].values[(cells["verdict"] == INACTIVE).any("block").values]
    if idle.size:
        raise UsageError(
            f"gate {gate.arm}@{gate.lo:g}:{gate.hi:g}: the arm makes the native step at sigma {idle[0]:g}; "
            "gate on the sigma of its own window"
        )
    if not done:
        return Decision(gate, UNRESOLVED, sigmas, "no sigma of the range is done")
    harmful = cells["p_harmful"].fillna(1.0)
    looks = harmful.size * steps
    if float(harmful.min()) * looks < LEVEL:
        worst = cells["sigma"].values[int(harmful.min("block").argmin("sigma"))]
        corrected = f", after correction for {looks} looks" if looks > 1 else ""
        return Decision(gate, HARMFUL, sigmas, f"at sigma {worst:g}{corrected}")
    if len(done) < len(sigmas):
        return Decision(gate, UNRESOLVED, sigmas, f"{len(sigmas) - len(done)} of {len(sigmas)} sigmas are not done")
    safe = cells["p_safe"].fillna(1.0)
    if float(safe.max()) < LEVEL:
        return Decision(gate, SAFE, sigmas, f"{where} at each of {_count(len(sigmas))}")
    open_sigmas = cells["sigma"].values[(safe.max("block") >= LEVEL).values]
    needed = float(cells["images_needed"].max()) if assessed.attrs["population"] == "images" else math.nan
    more = f"; {needed:.0f} images would settle it at the present estimate" if math.isfinite(needed) else ""
    listed = ", ".join(f"{sigma:g}" for sigma in open_sigmas)
    return Decision(gate, UNRESOLVED, sigmas, f"not shown to be safe at sigma {listed}{more}")


def over_steps(decisions: Mapping[int, Decision], lacking: Sequence[int] = ()) -> Decision:
    """One decision of those at each step: safe where all are, harmful where one is.

    ``lacking``: steps without a done cell, which leave it unresolved at best.
    """
    every = list(decisions.values())
    gate, sigmas = every[0].gate, every[0].sigmas
    for step, one in decisions.items():
        if one.verdict == HARMFUL:
            return Decision(gate, HARMFUL, sigmas, f"after {step} steps {one.reason}")
    if lacking:
        return Decision(gate, UNRESOLVED, sigmas, f"no sigma is done after {', '.join(map(str, lacking))} steps")
    for step, one in decisions.items():
        if one.verdict == UNRESOLVED:
            return Decision(gate, UNRESOLVED, sigmas, f"after {step} steps {one.reason}")
    return Decision(gate, SAFE, sigmas, f"after each of {', '.join(map(str, decisions))} steps {every[0].reason}")


def _count(sigmas: int) -> str:
    return f"{sigmas} grid sigma" + ("s" if sigmas != 1 else "")
