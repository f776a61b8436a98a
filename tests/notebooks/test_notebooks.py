"""Every notebook runs from top to bottom on a small store; its own comparison with the program is part of it."""

from pathlib import Path

import jupytext
import nbclient
import pytest

from analysis import schema, store, synthetic
from analysis.provenance import Code, Provenance

NOTEBOOKS = sorted((Path(__file__).parents[2] / "analysis" / "notebooks").glob("*.py"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("notebook") / "probe.zarr"
    bias = {"demote:56": (0.8, 0.2, 0.0), "demote:48": (1.5, 0.5, 0.1)}
    arms = ("native", "redraw", *bias)
    made = synthetic.store(arms=arms, sigmas=(0.3, 0.6, 0.9), images=10, draws=2, relative_bias=bias, cross=False)
    store.write(path, schema.described(made), Provenance("", {}, Code("")))
    return path


@pytest.mark.notebook
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])
def test_a_notebook_runs(notebook: Path, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGMA_PROBES_STORE", str(path))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # so that the kernel keeps pictures
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of the kernel's own machinery
    ran = nbclient.NotebookClient(jupytext.read(notebook), timeout=120, kernel_name="python3").execute()
    outputs = [output for cell in ran.cells for output in cell.get("outputs", [])]
    assert any("equal: redraw, demote:56, demote:48" in output.get("text", "") for output in outputs)
    assert any("image/png" in output.get("data", {}) for output in outputs)
