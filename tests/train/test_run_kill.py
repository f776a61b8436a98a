"""Runs that are killed, at any moment and inside writes, and gone on with: they end as if nothing had been."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from analysis.file_pairs import compared
from analysis.run_folder import METRICS, checkpoint_steps

pytestmark = pytest.mark.slow

STEPS = 240
TRAIN = [sys.executable, "-P", "-c", "from train.cli import main; main()"]
KILLED_IN_A_WRITE = """
import os, signal, sys
from train import tensors_file
write, left = tensors_file.save_file, int(sys.argv.pop(1))
def dying(tensors, path, metadata):
    global left
    left -= 1
    if not left:
        with open(path, "wb") as file:
            file.write(b"half of it")
            file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write(tensors, path, metadata)
tensors_file.save_file = dying
from train.cli import main
main()
"""


def options(tiny, out):
    return [
        "--model", str(tiny), "--out", str(out), "--steps", str(STEPS), "--rank", "2", "--threads", "1", "--resume",
        "--checkpoint-every", "4", "--learning-rate", "1e-3", "--arm", "demote:56@0.4",
    ]  # fmt: skip


def finish(tiny, out):
    subprocess.run([*TRAIN, *options(tiny, out)], check=True, capture_output=True)


def test_ten_kills_and_a_resume_end_at_the_same_bytes(tiny, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(tiny, whole)
    moments = random.Random(0)
    reached = []
    for kill in range(10):
        if kill % 2:
            command = [sys.executable, "-P", "-c", KILLED_IN_A_WRITE, str(moments.randint(1, 4))]
            died = subprocess.run([*command, *options(tiny, broken)], check=False, capture_output=True)
            assert died.returncode == -9, died.stderr
        else:
            with subprocess.Popen([*TRAIN, *options(tiny, broken)], stderr=subprocess.DEVNULL) as process:
                wait_for_a_step(broken)
                time.sleep(moments.uniform(0.0, 0.4))
                process.kill()
        reached.append(max(checkpoint_steps(broken), default=0))
    assert reached == sorted(reached)
    assert reached[-1] < STEPS
    finish(tiny, broken)
    assert compared(whole, broken).identical
    assert steps_of(whole) == steps_of(broken)
    assert not list(Path(broken).rglob(".*.partial*"))


def wait_for_a_step(run):
    """Until the process that was just started has taken a step."""
    log = run / METRICS
    before = log.stat().st_mtime_ns if log.exists() else 0
    end = time.monotonic() + 60
    while not log.exists() or log.stat().st_mtime_ns == before:
        assert time.monotonic() < end
        time.sleep(0.01)


def steps_of(run):
    rows = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def test_two_processes_of_one_command_differ_in_no_tensor_and_racing_ones_do(tiny, tmp_path):
    for name, more in (("a", ["--deterministic"]), ("b", ["--deterministic"]), ("c", ["--attention", "racing"]),
                       ("d", ["--attention", "racing"])):  # fmt: skip
        subprocess.run([*TRAIN, *options(tiny, tmp_path / name), *more], check=True, capture_output=True)
    equal, other = diff(tmp_path / "a", tmp_path / "b"), diff(tmp_path / "c", tmp_path / "d")
    tensors = (STEPS // 4) * 3 * 22 + 22  # checkpoints of adapter and two moments, and the adapter at the end
    assert (equal.returncode, other.returncode) == (0, 1)
    assert f"0 / {tensors} tensors differ, max abs diff 0.0" in equal.stdout


def diff(a, b):
    command = [sys.executable, "-P", "-c", "from analysis.cli import main; main()", "diff", str(a), str(b)]
    return subprocess.run(command, check=False, capture_output=True, text=True)
