"""Equivalents as sentences, and as entries of a JSON object."""

import math
import textwrap
from collections.abc import Iterator
from typing import Any

from analysis.marks.equivalent import INACTIVE, NOT_SEEN, Equivalent, Measured

WIDTH = 80
ABOUT = (
    "Each size stands with its 95 % interval, in the sum over blocks. A gain of 0.3 (gain:1.3) has that relative bias. "
    "A jitter compares single gradients, not their means: it is how far one step's gradient moves. A shift and a dtype "
    "are told by the ratio of two biases, whatever their directions; a shift's bias is taken to grow in proportion to "
    "it, which two doses in one store put to the test."
)
NO_MARKS = (
    "This store holds no shift and no dtype to compare with; probe again with, say, --arm shift:0.02 --arm dtype:bf16."
)


def as_text(found: Measured, *, metric: str) -> str:
    """A section of the report: one paragraph a sigma, arm after arm."""
    parts = ["Equivalent doses: each arm is as large as"]
    rows = [row for row in found.equivalents if row.metric == metric]
    for arm in dict.fromkeys(row.arm for row in rows):
        lines = [arm]
        for sigma in dict.fromkeys(row.sigma for row in rows):
            phrases = _phrases([row for row in rows if (row.arm, row.sigma) == (arm, sigma)])
            lines.append(_filled(f"{sigma:<7g} {'; '.join(phrases)}", first="  ", then=" " * 10))
        parts.append("\n".join(lines))
    parts.append(_filled(ABOUT))
    if not any(row.by for row in rows) and not any(one.kind in ("shift", "dtype") for one in found.marks):
        parts.append(_filled(NO_MARKS))
    if found.warnings:
        parts.append("\n".join(_filled(f"Warning: {warning}.") for warning in found.warnings))
    return "\n\n".join(parts)


def as_json(found: Measured) -> dict[str, Any]:
    """``equivalents`` by metric, sigma, arm and mark; None is no figure, and ``note`` says why."""
    return {
        "marks": [{"arm": one.arm, "kind": one.kind, "dose": one.dose} for one in found.marks],
        "equivalents": [
            {
                **{name: getattr(row, name) for name in ("metric", "sigma", "arm", "kind", "by")},
                "unit": {"gain": "relative bias", "jitter": "relative change of one gradient", "shift": "sigma"}.get(
                    row.kind, f"times {row.by}"
                ),
                **{name: _finite(getattr(row, name)) for name in ("dose", "lower", "upper")},
                "note": row.note or None,
            }
            for row in found.equivalents
        ],
        "warnings": found.warnings,
    }


def _phrases(rows: list[Equivalent]) -> Iterator[str]:
    """What is said of one arm at one sigma: figures mark by mark, upper bounds, then what there is no figure for."""
    if rows[0].note == INACTIVE:
        yield f"nothing: {INACTIVE}, to the bit"
        return
    for row in rows:
        if not row.note and row.lower > 0.0:
            yield f"{_sized(row, row.dose)} ({significant(row.lower)} to {significant(row.upper)}){_by(row)}"
    # An interval from 0 on shows no bias, whether the estimated square came out above zero or below.
    bounded = [f"{_sized(row, row.upper)}{_by(row)}" for row in rows if row.lower == 0.0]
    if bounded:
        yield f"no bias shown: at most {', '.join(bounded)}"
    for row in rows:
        if row.note not in ("", NOT_SEEN):
            yield f"{row.by or f'a {row.kind}'}: no figure, {row.note}"


def _sized(row: Equivalent, dose: float) -> str:
    """``a sigma shift of 0.012``, ``3.0 times dtype:bf16``."""
    if row.kind == "dtype":
        return f"{significant(dose)} times {row.by}"
    return f"{'a sigma shift' if row.kind == 'shift' else f'a {row.kind}'} of {significant(dose)}"


def _by(row: Equivalent) -> str:
    return f" by {row.by}" if row.kind == "shift" else ""


def significant(value: float) -> str:
    """Two significant digits without an exponent above 1e-5, and whole numbers as they are."""
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    return f"{value:.1e}" if size < -5 else f"{value:.{max(0, 1 - size)}f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _filled(text: str, *, first: str = "", then: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
