"""Cells from several processes: all arrive, errors come through as they are, and nobody is left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from analysis.errors import UsageError
from probes.jobs import in_processes, jobs_for


def squares(given):
    """Cell i is i squared, with a message of progress each; ``given`` names the cell that goes wrong, and how."""
    bad, how = given

    def compute(cell, progress):
        progress(1)
        if cell == bad:
            if how == "killed":
                os.kill(os.getpid(), 9)
            raise how
        return {"square": np.array(cell**2), "process": np.array(os.getpid())}

    return compute


def collected(cells, jobs, given=(None, None)):
    found, told = {}, []
    in_processes(squares, given, cells, jobs, found.__setitem__, told.append)
    return found, told


def test_every_cell_is_computed_once_in_as_many_processes(monkeypatch):
    found, told = collected([3, 5, 6, 9, 11], 2)
    assert {cell: int(arrays["square"]) for cell, arrays in found.items()} == {c: c * c for c in (3, 5, 6, 9, 11)}
    processes = {int(arrays["process"]) for arrays in found.values()}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert sum(told) == 5


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        (UsageError("image x is bad; look at it"), UsageError, "image x is bad; look at it"),
        (ZeroDivisionError("no"), RuntimeError, "ZeroDivisionError: no"),
        ("killed", RuntimeError, "ended before its cells were done"),
    ],
    ids=["usage", "defect", "killed"],
)
def test_what_goes_wrong_in_a_process_is_raised_here(how, kind, message):
    with pytest.raises(kind, match=message) as error:
        collected([1, 2, 3, 4], 2, (3, how))
    assert type(error.value) is kind


def test_processes_end_with_the_one_that_started_them(tmp_path):
    script = tmp_path / "sweep.py"
    script.write_text(
        "import os, sys, time\n"
        "from probes.jobs import in_processes\n"
        "def prepare(given):\n"
        "    open(f'{given}/{os.getpid()}', 'w').close()\n"
        "    return lambda cell, progress: time.sleep(60)\n"
        "if __name__ == '__main__':\n"
        "    in_processes(prepare, sys.argv[1], [0, 1], 2, print, print)\n"
    )
    marks = tmp_path / "processes"
    marks.mkdir()
    with subprocess.Popen([sys.executable, str(script), str(marks)]) as process:
        wait_until(lambda: len(list(marks.iterdir())) == 2)
        process.kill()
    workers = [int(mark.name) for mark in marks.iterdir()]
    wait_until(lambda: not any(alive(worker) for worker in workers))


def wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_sweep_takes_a_core_and_memory_for_each_process(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    for free_gib, cells, jobs in ((64, 13, 8), (64, 3, 3), (9, 13, 2), (1, 13, 1)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda g=free_gib: SimpleNamespace(available=g * 2**30))
        assert jobs_for(cells) == jobs
