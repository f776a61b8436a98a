"""A cache whose making is killed, at any moment and inside writes, or that two processes want, has the same bytes."""

import random
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.slow

CACHE = [sys.executable, "-P", "-c", "from train.cli import main; main()"]
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


def options(model, photographs, out):
    return [
        "cache", "--model", str(model), "--images", str(photographs), "--tiers", "64,48", "--out", str(out),
        "--threads", "1", "--device", "cpu",
    ]  # fmt: skip


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def written(folder):
    """How many files of it are whole."""
    return sum(not path.name.startswith(".") for path in folder.glob("*/*.safetensors"))


def test_kills_at_any_moment_and_a_last_go_end_at_the_same_bytes(model_folder, photographs, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    model = model_folder("flux")
    subprocess.run([*CACHE, *options(model, photographs, whole)], check=True, capture_output=True)
    moments, reached = random.Random(0), [0]
    for kill in range(6):
        if kill % 2:
            command = [sys.executable, "-P", "-c", KILLED_IN_A_WRITE, str(moments.randint(1, 2))]
            died = subprocess.run([*command, *options(model, photographs, broken)], check=False, capture_output=True)
            assert died.returncode == -9, died.stderr
        else:
            command = [*CACHE, *options(model, photographs, broken)]
            with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
                while written(broken) < reached[-1] + moments.randint(1, 3) and process.poll() is None:
                    time.sleep(0.002)
                time.sleep(moments.uniform(0, 0.01))
                process.kill()
        reached.append(written(broken))
    assert 0 < min(reached[1:]) < 19, reached
    subprocess.run([*CACHE, *options(model, photographs, broken)], check=True, capture_output=True)
    assert contents(broken) == contents(whole)


def test_two_processes_on_one_folder_do_not_spoil_it(model_folder, photographs, tmp_path):
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    model = model_folder("flux")
    subprocess.run([*CACHE, *options(model, photographs, whole)], check=True, capture_output=True)
    both = [
        subprocess.Popen([*CACHE, *options(model, photographs, shared)], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 2]), said
    if codes == [0, 2]:
        assert sum("is being written by another process" in text for text in said) == 1
    assert contents(shared) == contents(whole)
