"""The command ``analysis diff``: its text, its JSON object and its exit code, which is that of ``cmp``.

0: every tensor has the same name, dtype, shape and bytes; 1: not; 2: trouble. Metadata of the headers are shown, and
count only when that is asked for: a file saved again by another tool often has others around the same tensors.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import reduce
from pathlib import Path
from typing import Any

from analysis.blocks import in_depth_order
from analysis.bytewise import Difference
from analysis.distance import NONE, Distance
from analysis.errors import UsageError
from analysis.file_pairs import FilePair, MetadataChange, Pairs, compared

WIDTH, BEFORE = 40, 16
"""Characters shown of a metadata value, and how many of them before the first that differs."""


def print_difference(a: Path, b: Path, *, metadata: bool, first: int, json_object: bool) -> int:
    """Print the comparison; the exit code. ``first``: names to list of each kind and file, 0 for all."""
    if first < 0:
        raise UsageError(f"--first {first}: give the number of names to list, or 0 for all")
    found = compared(a, b)
    equal = found.identical and (found.metadata_identical or not metadata)
    if json_object:
        print(json.dumps({"a": str(a), "b": str(b), "equal": equal, **as_json(found)}, indent=1, allow_nan=False))
    else:
        print("\n".join(lines(found, first=first, metadata_counts=metadata)))
    return 0 if equal else 1


def lines(found: Pairs, *, first: int, metadata_counts: bool) -> Iterator[str]:
    """The answer in one line, then what differs, file by file."""
    yield _summary(found.files, found.only_in_a, found.only_in_b)
    yield from _one_sided("file", found.only_in_a, found.only_in_b, first)
    for pair in found.files:
        if pair.name and not (pair.tensors.identical and pair.metadata.identical):
            yield f"{shown(pair.name)}: {_summary((pair,))}"
        rows = _in_depth_order(pair)
        listed = rows[: first or None]
        width = max((len(shown(row.block)) for row in listed), default=0)
        yield from (f"  {shown(row.block):<{width}}  {shown(row.name)}: {_change(row)}" for row in listed)
        yield from _left_out(len(rows) - len(listed), "differ")
        yield from _one_sided("tensor", pair.tensors.only_in_a, pair.tensors.only_in_b, first)
        yield from _other_spelling(pair)
        if not pair.metadata.identical:
            counted = "counted" if metadata_counts else "not counted without --metadata"
            yield f"  metadata differ ({counted}): {_metadata(pair.metadata)}"


def as_json(found: Pairs) -> dict[str, Any]:
    """What --json prints, besides the two places and the answer; ``analysis.distance`` says what is counted."""
    return {
        **_sums(found.files),
        "metadata_equal": found.metadata_identical,
        "files_only_in_a": list(found.only_in_a),
        "files_only_in_b": list(found.only_in_b),
        "files": [_file_json(pair) for pair in found.files],
    }


def shown(name: str) -> str:
    """A name on one line; what a terminal would obey or could not print stands as an escape."""
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def _in_depth_order(pair: FilePair) -> list[Difference]:
    return sorted(pair.tensors.differences, key=lambda difference: in_depth_order(difference.name))


def _total(files: Sequence[FilePair]) -> tuple[int, int, int, Distance]:
    """Tensors on both sides, those that differ, those with another layout, and how far the others lie apart."""
    tensors = [pair.tensors for pair in files]
    differences = [difference for each in tensors for difference in each.differences]
    relaid = sum(difference.distance is None for difference in differences)
    distance = reduce(Distance.__add__, (each.distance for each in tensors), NONE)
    return sum(each.tensors for each in tensors), len(differences), relaid, distance


def _sums(files: Sequence[FilePair]) -> dict[str, Any]:
    tensors, differing, _, distance = _total(files)
    return {"tensors": tensors, "differing": differing, **_distance(distance)} | (
        {} if differing else {"max_abs_diff": 0.0}
    )


def _distance(distance: Distance) -> dict[str, Any]:
    fields = asdict(distance)
    return {"elements_differing": fields.pop("elements"), "max_abs_diff": fields.pop("largest"), **fields}


def _file_json(pair: FilePair) -> dict[str, Any]:
    return {
        "file": pair.name,
        **_sums((pair,)),
        "differences": [
            {"name": row.name, "block": row.block, "a": asdict(row.a), "b": asdict(row.b)}
            | {"distance": None if row.distance is None else _distance(row.distance)}
            for row in _in_depth_order(pair)
        ],
        "only_in_a": sorted(pair.tensors.only_in_a, key=in_depth_order),
        "only_in_b": sorted(pair.tensors.only_in_b, key=in_depth_order),
        "metadata": asdict(pair.metadata),
    }


def _summary(
    files: Sequence[FilePair], files_only_in_a: Sequence[str] = (), files_only_in_b: Sequence[str] = ()
) -> str:
    """One line, in which nothing that makes the exit code 1 stands behind a "max abs diff 0.0"."""
    tensors, differing, relaid, distance = _total(files)
    far = _far(distance) if differing else "max abs diff 0.0"
    layouts = f", {relaid} of another dtype or shape" if relaid else ""
    only_in_a = [name for pair in files for name in pair.tensors.only_in_a]
    only_in_b = [name for pair in files for name in pair.tensors.only_in_b]
    one_sided = _counts("tensor", only_in_a, only_in_b) + _counts("file", files_only_in_a, files_only_in_b)
    return f"{differing} / {tensors} tensors differ{layouts}{one_sided}, {far}"


def _counts(kind: str, only_in_a: Sequence[str], only_in_b: Sequence[str]) -> str:
    sides = (("A", len(only_in_a)), ("B", len(only_in_b)))
    return "".join(f", {n} {kind}{'s' if n > 1 else ''} only in {side}" for side, n in sides if n)


def _one_sided(kind: str, only_in_a: Sequence[str], only_in_b: Sequence[str], first: int) -> Iterator[str]:
    for side, names in (("A", only_in_a), ("B", only_in_b)):
        ordered = sorted(names, key=in_depth_order)
        listed = ordered[: first or None]
        yield from (f"  {kind} only in {side}: {shown(name)}" for name in listed)
        yield from _left_out(len(ordered) - len(listed), f"only in {side}")


def _other_spelling(pair: FilePair) -> Iterator[str]:
    """Where two LoRA files have no name in common, such as diffusers' and kohya's form of one."""
    sides = pair.tensors.only_in_a, pair.tensors.only_in_b
    if not pair.tensors.tensors and all(any("lora" in name.lower() for name in names) for names in sides):
        yield "  two LoRA files that name their tensors in other ways: analysis endpoints compares what they do"


def _left_out(number: int, what: str) -> Iterator[str]:
    if number:
        yield f"  ... {number} more {what} (--first 0 lists all)"


def _change(row: Difference) -> str:
    if row.distance is None:
        return f"{row.a} in A, {row.b} in B"
    if row.distance.unread_bytes:
        return f"{row.distance.unread_bytes} of {row.a.bytes} bytes, {_far(row.distance)}"
    return f"{row.distance.elements} of {row.a.elements} elements, {_far(row.distance)}"


def _far(distance: Distance) -> str:
    """The largest difference of what differs, and what that number leaves out."""
    notes = [
        "-0.0 against 0.0" if distance.largest == 0 else "",
        f"{distance.infinite} infinite" if distance.infinite else "",
        f"{distance.nan_on_one_side} NaN on one side" if distance.nan_on_one_side else "",
        f"{distance.nan_of_other_bits} NaN of other bits" if distance.nan_of_other_bits else "",
        "formats without values" if distance.unread_bytes else "",
    ]
    told = ", ".join(filter(None, notes))
    largest = "undefined" if distance.largest is None else repr(distance.largest)
    return f"max abs diff {largest}{f' ({told})' if told else ''}"


def _metadata(change: MetadataChange) -> str:
    changed = [f"{shown(key)} {_around(*values)}" for key, values in change.changed.items()]
    sides = (("A", change.only_in_a), ("B", change.only_in_b))
    return "; ".join([*changed, *(f"only in {side}: {', '.join(map(shown, keys))}" for side, keys in sides if keys)])


def _around(a: str, b: str) -> str:
    """Both values, or of long ones what stands around the first character that differs."""
    same = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, same - BEFORE) if max(len(a), len(b)) > WIDTH else 0
    cut_a, cut_b = (
        ("..." if start else "") + value[start : start + WIDTH] + ("..." if value[start + WIDTH :] else "")
        for value in (a, b)
    )
    return f"'{shown(cut_a)}' in A, '{shown(cut_b)}' in B"
