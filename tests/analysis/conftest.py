"""A small probe store with known answers and a writer of safetensors files, for every test that reads one."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text

from analysis import schema, store, synthetic
from analysis.provenance import Code, Provenance

PROVENANCE = Provenance(
    "probes grad --sigma-grid 0.3,0.6,0.9",
    {"seed": 0, "engine": "func"},
    Code("0.1.0", "abc"),
    {"model": "sha256:1"},
    {"torch": "2.13.0"},
)


@pytest.fixture(scope="session")
def probe_dataset() -> xr.Dataset:
    """``demote:56`` is harmful at 0.3, at a margin of 0.2 at 0.6 and safe at 0.9; ``redraw`` has no bias."""
    made = synthetic.store(
        arms=("native", "redraw", "demote:56"),
        sigmas=(0.3, 0.6, 0.9),
        blocks=("double.0", "single.0"),
        metrics=("raw", "weight"),
        images=16,
        draws=4,
        relative_bias={"demote:56": (0.8, 0.2, 0.02)},
        seed=1,
    )
    return schema.described(made)


@pytest.fixture(scope="session")
def probe_store(probe_dataset: xr.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``probe_dataset`` on disk; tests do not change it."""
    path = tmp_path_factory.mktemp("probe") / "probe.zarr"
    store.write(path, probe_dataset, PROVENANCE)
    return path


SafetensorsWriter = Callable[..., Path]


@pytest.fixture
def safetensors_writer(tmp_path: Path) -> SafetensorsWriter:
    """``write("a.safetensors", {"w": ("BF16", (2, 3), data)}, {"key": "text"})``: a file below the test's folder.

    Written by hand, so that every dtype can be, in the order given.
    """

    def write(
        name: str, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]], metadata: Mapping[str, str] | None = None
    ) -> Path:
        header: dict[str, object] = {} if metadata is None else {"__metadata__": dict(metadata)}
        end = 0
        for key, (dtype, shape, data) in tensors.items():
            header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end := end + len(data)]}
        text = json.dumps(header).encode()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for _, _, data in tensors.values()))
        return path

    return write


def check_nothing_cut_off(figure: Figure) -> None:
    """Fails where a title, a legend or a label reaches beyond the edges of a picture."""
    figure.draw_without_rendering()  # the canvas of a bare figure draws nothing
    page = figure.bbox
    shown = [axes for axes in figure.axes if axes.get_visible()]
    titles = [figure.texts, *([axes.xaxis.label, axes.yaxis.label, *axes.get_children()] for axes in shown)]
    legends = [legend.get_texts() for legend in (*figure.legends, *(axes.get_legend() for axes in shown)) if legend]
    for text in (one for texts in (*titles, *legends) for one in texts if isinstance(one, Text) and one.get_text()):
        place = text.get_window_extent()
        assert page.x0 <= place.x0 + 1, f"{text.get_text()!r} is cut off on the left"
        assert page.x1 >= place.x1 - 1, f"{text.get_text()!r} is cut off on the right"
        assert page.y0 <= place.y0 + 1, f"{text.get_text()!r} is cut off below"
        assert page.y1 >= place.y1 - 1, f"{text.get_text()!r} is cut off above"


@pytest.fixture(autouse=True)
def nothing_cut_off(monkeypatch: pytest.MonkeyPatch) -> Callable[[Figure], None]:
    """The check, which every picture that a test of this folder saves has to pass."""
    save = Figure.savefig

    def checked(figure: Figure, *args: Any, **options: Any) -> None:
        check_nothing_cut_off(figure)
        save(figure, *args, **options)

    monkeypatch.setattr(Figure, "savefig", checked)
    return check_nothing_cut_off
