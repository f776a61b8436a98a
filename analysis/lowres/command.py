"""``analysis import-lowres``: read published per-image records, print their two tables, keep them as a store."""

import json
import math
import textwrap
from pathlib import Path
from typing import Any

import xarray as xr

from analysis.lowres import records, store, tables

WIDTH = 80
CAUTIONS = (
    "Each figure is a mean over images of one image's own cosines or norms. A mean of per-image cosines is not the "
    "cosine of the mean gradients: weak images weigh as much as strong ones, and hardly have a cosine "
    "(docs/method.md, Eq. 12). Dropping images by their value moves a mean. These tables are for comparison "
    "with what was published.",
    "The records hold no inner products, so `analysis safety` has no figure, interval or verdict for them.",
)


def print_lowres(path: Path, out: Path | None, *, json_object: bool) -> None:
    """Print both tables, as text or one JSON object. UsageError for a bad file, or a place that is taken."""
    dataset = records.read(path)
    gaps, ratios = tables.gap(dataset), tables.norm_ratio(dataset)
    if out is not None:
        store.write(out, dataset, source=path)
    if json_object:
        print(json.dumps(as_json(dataset, gaps, ratios, out), indent=1, allow_nan=False))
        return
    print(as_text(dataset, gaps, ratios))
    if out is not None:
        print(f"\nStore:     {out}")


def as_json(dataset: xr.Dataset, gaps: xr.Dataset, ratios: xr.Dataset, out: Path | None) -> dict[str, Any]:
    """One object: ``gap`` and ``norm_ratio`` are lists of cells; a figure of no image is None."""
    total = dataset.sizes["image"]
    return {
        "schema": dataset.attrs["schema"],
        "schema_version": dataset.attrs["schema_version"],
        "images": total,
        "sigmas": dataset["sigma"].values.tolist(),
        "arms": dataset["arm"].values.tolist(),
        "control": tables.CONTROL,
        "gap": _cells(gaps, "gap", total),
        "norm_ratio": _cells(ratios, "norm_ratio", total),
        "cautions": list(CAUTIONS),
        "store": None if out is None else str(out),
    }


def as_text(dataset: xr.Dataset, gaps: xr.Dataset, ratios: xr.Dataset) -> str:
    """Both tables with their counts, and what they are not."""
    sizes = dataset.sizes
    arms = ", ".join(dataset["arm"].values.tolist())
    total = sizes["image"]
    opening = f"Published per-image records: {total} images, {sizes['sigma']} sigmas, arms {arms}."
    if dataset["sigma"].values[-1] == 1.0:
        opening += " sigma 1 is pure noise: a cell of its own."
    gap_title = (
        f"Debiased gap, 1 - cosine, over that of {tables.CONTROL}: mean over images; differences beyond "
        f"+-{tables.LARGEST:g} or without a value are dropped."
    )
    ratio_title = (
        "Debiased norm ratio: geometric mean over images of the norm over the native one, times "
        "sqrt(cos_self / cos_floor); images without two positive cosines are dropped."
    )
    parts = [
        _filled(opening),
        f"{_filled(gap_title)}\n{_table(gaps, 'gap', 3, total)}",
        f"{_filled(ratio_title)}\n{_table(ratios, 'norm_ratio', 2, total)}",
        f"(-n): n of the {total} images dropped.",
        "\n".join(_filled(f"Caution: {caution}") for caution in CAUTIONS),
    ]
    return "\n\n".join(parts)


def _table(figures: xr.Dataset, name: str, digits: int, total: int) -> str:
    """Rows of sigma, columns of arms; behind a figure stands how many images it lacks."""
    arms = figures["arm"].values.tolist()
    width = max(13, *(len(arm) + 7 for arm in arms))
    lines = ["  sigma   " + "".join(f"{arm:>{width - 6}}      " for arm in arms).rstrip()]
    for row in range(figures.sizes["sigma"]):
        cells = figures.isel(sigma=row)
        shown = "".join(
            f"{value:>{width - 6}.{digits}f} {f'(-{total - used})' if used < total else '':<5}"
            if math.isfinite(value)
            else f"{'-':>{width - 6}} {f'(-{total - used})':<5}"
            for value, used in zip(cells[name].values.tolist(), cells["images"].values.tolist(), strict=True)
        )
        lines.append(f"  {float(cells['sigma']):<7g} {shown}".rstrip())
    return "\n".join(lines)


def _cells(figures: xr.Dataset, name: str, total: int) -> list[dict[str, Any]]:
    cells = []
    for sigma in figures["sigma"].values.tolist():
        for arm in figures["arm"].values.tolist():
            cell = figures.sel(sigma=sigma, arm=arm)
            value, used = float(cell[name]), int(cell["images"])
            shown = value if math.isfinite(value) else None
            cells.append({"sigma": sigma, "arm": arm, name: shown, "images": used, "dropped": total - used})
    return cells


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
