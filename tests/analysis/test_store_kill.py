"""A writer may be killed at any moment: resumed, it ends byte-equal to one that was left alone.

Writers are forked from a small server that has imported what they need, so each costs milliseconds, and they die by
SIGKILL: at random moments, and at every step of a file's writing.
"""

import multiprocessing
import runpy
import time
from pathlib import Path

import numpy as np
import pytest

from analysis import store

WRITER = '''
import os, signal
import numpy as np
import zarr.storage._local as disk
from analysis import schema, store
from analysis.provenance import Code, Provenance
from analysis.synthetic import gram_arrays

steps = 0

def step():
    """Die at the appointed file operation."""
    global steps
    steps += 1
    if steps == fatal_step:
        os.kill(os.getpid(), signal.SIGKILL)

def put(path, value, exclusive=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    view = memoryview(value.as_buffer_like())
    with disk._atomic_write(path, "wb", exclusive=exclusive) as file:
        file.write(view[: len(view) // 2])
        file.flush()
        step()
        file.write(view[len(view) // 2 :])
        file.flush()
        step()
    step()
    return len(view)

def rename(self, target):
    step()
    os.rename(self, target)
    step()

def cell(index):
    generator = np.random.default_rng(index)
    samples = generator.standard_normal((1, 3, 2, 24, 4, 30))
    names = ("gram_image", "gram_draw", "gram_cross")
    arrays = dict(zip(names, gram_arrays(samples), strict=True))
    return {**arrays, "loss": np.ones((2, 24, 4)), "seconds": np.ones(2), "images_used": 24}

if fatal_step:
    disk._put = put
    type(path).rename = rename
with store.lock(path):
    if not path.exists():
        labels = (["raw"], [0.25, 0.5, 0.75, 1.0], ["a", "b", "c"], ["native", "x"], [f"i{n}" for n in range(24)])
        store.create(path, schema.template(*labels, range(4), cross=True), Provenance("", {}, Code("1")))
    for index in store.missing(path) if with_cells else []:
        store.write_cell(path, index, cell(index))
'''


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("writer") / "writer.py"
    script.write_text(WRITER)
    return str(script)


def run(
    script: str, path: Path, *, fatal_step: int = 0, with_cells: bool = True, kill_after_s: float | None = None
) -> int:
    """Exit code of a writer: 0 when it finished, -9 when it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["xarray", "zarr.storage", "analysis.schema", "analysis.store", "analysis.synthetic"]
    )
    settings = {"path": path, "fatal_step": fatal_step, "with_cells": with_cells}
    writer = context.Process(target=runpy.run_path, args=(script, settings))
    writer.start()
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        writer.kill()
    writer.join(120)
    assert writer.exitcode is not None
    return writer.exitcode


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


@pytest.fixture(scope="module")
def undisturbed(script: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], float]:
    """Every file of a run that nobody killed, and how long it took in seconds."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run(script, folder / "first.zarr") == 0  # starts the server
    began = time.perf_counter()
    assert run(script, folder / "probe.zarr") == 0
    seconds = time.perf_counter() - began
    assert store.missing(folder / "probe.zarr") == []
    return {name: data for name, data in snapshot(folder).items() if name.startswith("probe.zarr")}, seconds


def test_killed_at_twenty_random_moments(script: str, undisturbed, tmp_path: Path) -> None:
    whole, seconds = undisturbed
    generator = np.random.default_rng(0)
    kills = 0
    for trial in range(200):
        if kills >= 20:
            break
        folder = tmp_path / str(trial)
        folder.mkdir()
        while (code := run(script, folder / "probe.zarr", kill_after_s=generator.uniform(0, seconds))) != 0:
            assert code == -9
            kills += 1
        assert snapshot(folder) == whole
    assert kills >= 20


def test_killed_while_it_is_made(script: str, undisturbed, tmp_path: Path) -> None:
    """The store is there whole or not at all; what the dead left is gone at the end."""
    whole, _ = undisturbed
    path = tmp_path / "probe.zarr"
    step = 1
    while (code := run(script, path, fatal_step=step, with_cells=False)) != 0:
        assert code == -9
        if path.exists():
            assert store.missing(path) == [0, 1, 2, 3]
        step += 8
    assert step > 80
    assert run(script, path) == 0
    assert snapshot(tmp_path) == whole


def test_killed_at_every_step_of_a_cell(script: str, undisturbed, tmp_path: Path) -> None:
    """One run that dies at its first step, is resumed and dies at its second, and so on until it lives."""
    whole, _ = undisturbed
    path = tmp_path / "probe.zarr"
    assert run(script, path, with_cells=False) == 0
    died_inside_a_cell = 0
    step = 1
    while (code := run(script, path, fatal_step=step)) != 0:
        assert code == -9
        missing = store.missing(path)
        died_inside_a_cell += missing == [0, 1, 2, 3]
        for index in set(range(4)) - set(missing):
            chunk = f"gram_image/c.0.{index}.0.0.0.0.0"
            assert whole[f"probe.zarr/{chunk}"] == (path / chunk).read_bytes()
        step += 1
    assert died_inside_a_cell >= 18
    assert snapshot(tmp_path) == whole
