import shutil

import numpy as np
import pytest

from analysis.errors import UsageError
from probes.room import GIB, Room, plan_room

SIZE = {"arms": 5, "images": 24, "draws": 4, "group": 6, "coordinates": 50_000}
MEANS = 5 * 24 * 50_000 * 8
WORKING = 5 * 6 * 4 * 50_000 * 12


def test_the_bound_decides_between_memory_and_scratch_files(tmp_path):
    roomy = plan_room(**SIZE, memory=GIB, folder=tmp_path)
    assert (roomy.in_memory, roomy.cross, roomy.means, roomy.draws, roomy.working) == (
        True,
        True,
        MEANS,
        4 * MEANS,
        WORKING,
    )
    exact = MEANS * 5 + WORKING
    assert plan_room(**SIZE, memory=exact, folder=tmp_path).in_memory
    tight = plan_room(**SIZE, memory=exact - 1, folder=tmp_path)
    assert (tight.in_memory, tight.cross) == (False, True)


def test_a_small_disk_costs_the_cross_gram_and_then_the_sweep(tmp_path, monkeypatch):
    def disk_with(free):
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(10 * GIB, 0, free))

    disk_with(2 * MEANS)
    without = plan_room(**SIZE, memory=MEANS, folder=tmp_path)
    assert (without.in_memory, without.cross) == (False, False)
    assert plan_room(**SIZE, memory=MEANS + WORKING, folder=tmp_path).in_memory
    disk_with(MEANS)
    with pytest.raises(UsageError, match=r"image means take 0\.0 GiB, more than --memory"):
        plan_room(**SIZE, memory=MEANS, folder=tmp_path)


def test_scratch_arrays_start_at_zero_and_leave_nothing_behind(tmp_path):
    room = Room(0, 0, 0, in_memory=False, cross=True, folder=tmp_path)
    array = room.allocate((3, 4))
    assert isinstance(array, np.memmap)
    assert not array.any()
    array[1, 2] = 5
    assert float(np.asarray(array).sum()) == 5
    assert list(tmp_path.iterdir()) == []
