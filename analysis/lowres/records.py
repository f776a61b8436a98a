"""Reads published per-image records, one JSON object a line.

    {"image": 0, "sigma_centers": [0.3, 1.0], "cos_floor": [0.5, 0.9], "gnorm_native": [0.6, 8.9],
     "cos_896": [...], "cos_self_896": [...], "debiased_gap_896": [...], "gnorm_896": [...]}

An arm is whatever has a ``debiased_gap_``; ``gnorm_`` may be absent for a whole arm. ``gap_`` is cos_floor - cos_ and
is passed over. NaN or null is a figure the record lacks.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from analysis.errors import UsageError
from analysis.lowres.schema import described

PREFIXES = {"cosine": "cos_", "cos_self": "cos_self_", "debiased_gap": "debiased_gap_", "gradient_norm": "gnorm_"}
"""Array: what its fields begin with; the arm's name follows."""
NATIVE = {"cos_floor": "cos_floor", "gradient_norm_native": "gnorm_native"}
IMAGE = {"redundancy": float, "tokens_native": int}
"""One number an image, kept where every line has it."""
SIGMAS = "sigma_centers"


def read(path: Path) -> xr.Dataset:
    """Dataset of the contract in ``schema``. UsageError, one line with its number, for what is no such record."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read ({type(error).__name__}); want a file of JSON lines") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path} holds no image; want one JSON object a line")
    first: _Line | None = None
    rows: dict[str, _Line] = {}
    for number, line in lines:
        row = _Line(path, number, line)
        first = first or row
        row.check(first)
        if row.image in rows:
            raise row.error(f"image {row.image} is there twice (line {rows[row.image].number}); want every image once")
        rows[row.image] = row
    assert first is not None
    return _dataset(list(rows.values()), first)


class _Line:
    """One image's record."""

    def __init__(self, path: Path, number: int, text: str):
        self._path, self.number = path, number
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.error(f"not a JSON line ({error})") from None
        if not isinstance(content, dict):
            raise self.error(f"a JSON {type(content).__name__}; want one object an image")
        self.fields: dict[str, Any] = content
        if type(content.get("image")) not in (int, str):
            raise self.error(f"field image is {content.get('image')!r}; want a number or a name")
        self.image = str(content["image"])
        prefix = PREFIXES["debiased_gap"]
        self.arms = [name.removeprefix(prefix) for name in content if name.startswith(prefix)]

    def error(self, message: str) -> UsageError:
        return UsageError(f"{self._path} line {self.number}: {message}")

    def check(self, first: "_Line") -> None:
        """Raise UsageError unless this line has the sigmas, arms and figures of ``first``, in finite numbers."""
        sigmas = self.numbers(SIGMAS)
        if not (np.isfinite(sigmas) & (sigmas > 0) & (sigmas <= 1)).all() or not (np.diff(sigmas) > 0).all():
            raise self.error(f"{SIGMAS} is {sigmas.tolist()}; want strictly increasing values in (0, 1]")
        if not self.arms:
            raise self.error("no field debiased_gap_ARM; want at least one arm")
        if self.arms != first.arms and sorted(self.arms) != sorted(first.arms):
            raise self.error(f"arms {', '.join(self.arms)}; line {first.number} has {', '.join(first.arms)}")
        if sigmas.tolist() != first.numbers(SIGMAS).tolist():
            raise self.error(f"{SIGMAS} differ from those of line {first.number}; want one grid for all images")
        for name in self.wanted(first):
            values = self.numbers(name)
            if values.size != sigmas.size:
                raise self.error(f"{name} has {values.size} values; want {sigmas.size}, one for each of {SIGMAS}")
            if name.startswith("cos_") and (np.abs(values) > 1.0).any():
                raise self.error(f"{name} holds a value beyond 1; want cosines")
            if name.startswith("gnorm_") and (values <= 0.0).any():
                raise self.error(f"{name} holds a value that is not positive; want norms")

    def wanted(self, first: "_Line") -> list[str]:
        """Every list that the dataset takes; norms of arms that have some in the first line."""
        arms = [prefix + arm for prefix in PREFIXES.values() for arm in first.arms]
        return [*NATIVE.values(), *(name for name in arms if not name.startswith("gnorm_") or name in first.fields)]

    def numbers(self, name: str) -> np.ndarray:
        """A list field as float64, NaN for null."""
        values = self.fields.get(name)
        if values is None:
            raise self.error(f"field {name} is missing; want a list of numbers, one per sigma")
        if not isinstance(values, list) or not all(value is None or _is_number(value) for value in values):
            raise self.error(f"field {name} is not a list of finite numbers (NaN or null where there is none)")
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def _is_number(value: Any) -> bool:
    """A JSON number or NaN that float64 holds; no boolean, no infinity."""
    return (type(value) is float and not math.isinf(value)) or (type(value) is int and abs(value) < 2**53)


def _dataset(rows: list[_Line], first: _Line) -> xr.Dataset:
    sigmas = first.numbers(SIGMAS)
    missing = np.full(sigmas.size, math.nan)

    def stacked(name: str) -> np.ndarray:
        """[sigma, image], NaN for a field that no line has."""
        return np.stack([row.numbers(name) if name in first.fields else missing for row in rows], axis=-1)

    variables: dict[str, Any] = {array: (("sigma", "image"), stacked(field)) for array, field in NATIVE.items()}
    for array, prefix in PREFIXES.items():
        variables[array] = (("sigma", "arm", "image"), np.stack([stacked(prefix + arm) for arm in first.arms], axis=1))
    for name, kind in IMAGE.items():
        if all(_is_number(row.fields.get(name)) for row in rows):
            variables[name] = (("image",), np.array([kind(row.fields[name]) for row in rows]))
    coordinates = {"sigma": sigmas, "arm": np.array(first.arms), "image": np.array([row.image for row in rows])}
    return described(xr.Dataset(variables, coordinates))
