"""A cache whose making is killed, at any moment and inside writes, or that two processes want, has the same bytes."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

#: One process imports everything and forks; each child is killed as a whole.
DRIVER = """
import os, random, signal, sys, time
from pathlib import Path
import train.cache.build, train.cache.texts, transformers, diffusers
from analysis.entry import exit_code
from train import tensors_file
from train.cli import app

whole, broken, *arguments = sys.argv[1:]
kills, moments = 8, random.Random(0)

def written():
    return sum(not p.name.startswith(".") for p in Path(broken).glob("*/*.safetensors"))

def child(out, writes=None):
    if pid := os.fork():
        return pid
    save = tensors_file.save_file
    def dying(tensors, path, metadata):
        nonlocal writes
        writes -= 1
        if not writes:
            with open(path, "wb") as file:
                file.write(b"half of it")
                file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        save(tensors, path, metadata)
    if writes:
        tensors_file.save_file = dying
    os._exit(exit_code(app, [*arguments, "--out", out], name="train"))

def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

assert ended(child(whole)) == 0
reached = [0]
for kill in range(kills):
    if kill % 2:
        ended(child(broken, writes=moments.randint(1, 2)))
    else:
        until, pid = reached[-1] + moments.randint(0, 2), child(broken)
        patience = time.monotonic() + 60
        while written() < until and time.monotonic() < patience:
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        ended(pid)
    reached.append(written())
print(reached)
assert len(set(reached)) > 2
assert ended(child(broken)) == 0
"""
CACHE = [sys.executable, "-P", "-c", "from train.cli import main; main()"]


def arguments(model, photographs):
    common = ["cache", "--model", str(model), "--images", str(photographs), "--tiers", "64,48"]
    return [*common, "--threads", "1", "--device", "cpu"]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_kills_at_any_moment_and_a_last_go_end_at_the_same_bytes(model_folder, photographs, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    command = [
        sys.executable,
        "-P",
        "-c",
        DRIVER,
        str(whole),
        str(broken),
        *arguments(model_folder("flux"), photographs),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(contents(whole)) == 20  # 16 latents, 3 texts, the index
    assert contents(broken) == contents(whole)


def test_two_processes_on_one_folder_do_not_spoil_it(model_folder, photographs, tmp_path):
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    given = arguments(model_folder("flux"), photographs)
    both = [
        subprocess.Popen(
            [*CACHE, *given, "--out", str(shared)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 2]), said
    if codes == [0, 2]:
        assert sum("is being written by another process" in text for text in said) == 1
    subprocess.run([*CACHE, *given, "--out", str(whole)], check=True, capture_output=True)
    assert contents(shared) == contents(whole)
