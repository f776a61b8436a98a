"""Fused modules split into the parts that another file has: rows of up, with all of down."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.errors import UsageError
from analysis.lora.file import LoraModule
from analysis.lora.original_names import Table, fold


def split(
    modules: Mapping[str, LoraModule], table: Table, heights: Mapping[str, int], path: Path
) -> dict[str, LoraModule]:
    """``modules`` of the file ``path`` by folded name, with every fused one split of which some file has a part.

    heights: outputs of the modules of all files, by folded name.
    """
    found: dict[str, LoraModule] = {}
    for name, module in modules.items():
        parts = [fold(part) for part in table.parts(name)]
        if len(parts) < 2 or not any(part in heights for part in parts):
            found[name] = module
            continue
        start = 0
        for part, height in zip(parts, _heights(module, parts, heights, path), strict=True):
            if part in modules:
                raise UsageError(
                    f"{path}: {module.name} and {modules[part].name}, a part of it, are both there; keep one"
                )
            dotted = table.dotted(part) or part
            found[part] = replace(module, name=dotted, up=module.up[start : start + height])
            start += height
    return found


def _heights(module: LoraModule, parts: Sequence[str], heights: Mapping[str, int], path: Path) -> list[int]:
    """Outputs of each part. Query, key and value have one width; a fourth part has the rest."""
    total = module.shape[0]
    of_three = next((heights[part] for part in parts[:3] if part in heights), None)
    if of_three is None:
        of_three = (total - heights[parts[3]]) // 3
    rest = total - 3 * of_three
    if of_three < 1 or (rest != 0 if len(parts) == 3 else rest < 1):
        have = ", ".join(f"{part} {heights[part]}" for part in parts if part in heights)
        raise UsageError(
            f"{path}: {module.name} has {total} outputs, which are not those of its parts in another file ({have}): "
            "adapters of different base models; give adapters of one"
        )
    return [of_three] * 3 + [rest] * (len(parts) - 3)
