"""A small probe store with known answers, for every test that reads one."""

from pathlib import Path

import pytest
import xarray as xr

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
