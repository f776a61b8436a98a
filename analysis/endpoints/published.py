"""Published displacement files: cosines without inner products, shown as the same pairs.

    {"arms": [...], "pairs": {"native~early": {"cos_global": 0.1927, "cos_per_block": {"0": 0.3447, ...}}}}

Such a file carries neither twins nor certificates, so no pair of it gets a verdict.
"""

import json
import math
from pathlib import Path
from typing import Any

from analysis.blocks import in_depth_order
from analysis.endpoints.pairs import NO_FLOOR, Figure, Pair
from analysis.errors import UsageError


def published_pairs(path: Path) -> list[Pair]:
    """The pairs of one file, in its order. UsageError if it is none, or a figure is no cosine."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return [pair(path, name, entry) for name, entry in content["pairs"].items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: not a published displacement file ({type(error).__name__}: {error}); "
            "it holds pairs, each with cos_global and cos_per_block"
        ) from None


def pair(path: Path, name: str, entry: dict[str, Any]) -> Pair:
    """One entry. step: 0, as files do not tell it."""
    a, tilde, b = name.partition("~")
    if not (a and tilde and b):
        raise UsageError(f"{path}: pair {name!r}; want two arms with ~ between them")
    blocks = {
        block: figure(path, f"{name} block {block}", value)
        for block, value in sorted(entry["cos_per_block"].items(), key=lambda item: in_depth_order(item[0]))
    }
    total = figure(path, name, entry["cos_global"])
    return Pair(a, b, 0, total, blocks, {0: total.cosine}, None, "published cosines, without twins or certificates")


def figure(path: Path, where: str, value: Any) -> Figure:
    """A cosine alone; null is one that does not exist."""
    if value is not None and not (type(value) in (int, float) and math.isfinite(value) and -1 <= value <= 1):
        raise UsageError(f"{path}: cosine of {where} is {value!r}; want a number from -1 to 1, or null")
    return Figure(None if value is None else float(value), None, None, None, NO_FLOOR)
