"""Print what a horizon store says, and draw it."""

import json
from pathlib import Path

import xarray as xr

from analysis.horizon.answer import Answer, as_json, assess
from analysis.horizon.report import as_text


def print_horizon(path: Path, dataset: xr.Dataset, *, json_object: bool, png: Path | None) -> None:
    """The table or one JSON object, and the figure: beside the store, with ``json_object`` only where ``png`` asks."""
    answer = assess(dataset)
    picture = png or (None if json_object else path.absolute().with_suffix(".png"))
    files = {"Store": str(path)}
    if picture is not None:
        draw(answer, picture)
        files["Figure"] = str(picture)
    if json_object:
        print(json.dumps(as_json(answer, files), indent=1, allow_nan=False))
        return
    print(as_text(answer))
    print("".join(f"\n{name + ':':<8} {file}" for name, file in files.items()))


def draw(answer: Answer, png: Path) -> None:
    """The figure as a PNG."""
    from analysis import picture
    from analysis.horizon.plots import horizon_figure

    picture.write(horizon_figure(answer), png)
