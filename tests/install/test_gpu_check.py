"""scripts/gpu_check.sh on a CPU: what cannot run says so, what fails says why, and nothing passes unseen."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "gpu_check.sh"


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts" / "gpu_check" / "check.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHILDREN = {
    'print("noise"); print(\'{"state": "passed", "n": 1}\')': ("passed", None),
    "import time; time.sleep(60)": ("not run", "not done after 3 s"),
    'raise RuntimeError("out of memory")': ("failed", "RuntimeError: out of memory"),
    "pass": ("failed", "exit code 0"),
    "import os; os._exit(9)": ("failed", "exit code 9"),
}


@pytest.mark.parametrize("code", CHILDREN)
def test_a_part_says_what_came_of_it(code, check, tmp_path):
    (tmp_path / "part.py").write_text(code)
    state, why = CHILDREN[code]
    row = check.taken("a part", [], 3, tmp_path / "part.py")
    assert (row["part"], row["state"], row.get("why")) == ("a part", state, why)
    assert (row.get("n") == 1) == (state == "passed")


def test_without_time_nothing_is_started(check, tmp_path):
    assert check.taken("a part", [], 0.5, tmp_path / "absent.py") == {
        "part": "a part", "state": "not run", "why": "no time left"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("states", "code"), [(["passed"], 0), (["passed", "not run"], 3), (["not run", "failed", "passed"], 1)]
)
def test_only_what_passed_is_success(states, code, check, monkeypatch, capsys):
    given = iter(states)
    monkeypatch.setattr(check, "PARTS", dict.fromkeys(map(str, range(len(states))), 9))
    monkeypatch.setattr(check, "taken", lambda part, *_: {"part": part, "state": next(given)})
    monkeypatch.setattr(check, "missing_device", lambda _: "")
    monkeypatch.setattr(sys, "argv", ["check.py"])
    assert check.main() == code
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["state"] for line in lines[: len(states)]] == states
    assert lines[-1] == f"| {len(states) - 1} | {states[-1]} |  |"


@pytest.mark.parametrize(
    ("said", "why"),
    [("print(False)", "torch finds no CUDA device"), ("raise ImportError('no torch')", "ImportError: no torch")],
)
def test_without_a_device_no_part_is_started(said, why, check, monkeypatch, capsys):
    run = subprocess.run
    monkeypatch.setattr(check.subprocess, "run", lambda _, **how: run([sys.executable, "-c", said], **how))
    monkeypatch.setattr(check, "taken", lambda *_: pytest.fail("a part was started"))
    monkeypatch.setattr(sys, "argv", ["check.py", "--only", "twins", "--only", "flash steps"])
    assert check.main() == 3
    first, second = map(json.loads, capsys.readouterr().out.splitlines()[:2])
    assert (first["part"], second["part"]) == ("twins", "flash steps")
    assert [row["why"] for row in (first, second)] == [why, why]


def test_the_document_has_a_row_for_every_part(check):
    table = (
        (ROOT / "docs" / "gpu.md")
        .read_text()
        .partition("| part | state | seen |\n|---|---|---|\n")[2]
        .partition("\n\n")[0]
    )
    assert [line.split("|")[1].strip() for line in table.splitlines()] == list(check.PARTS)


@pytest.mark.slow
def test_the_whole_script_on_a_cpu():
    done = subprocess.run(
        [SCRIPT, "--tiny", "--device", "cpu", "--limit", "1500"],
        capture_output=True, text=True, timeout=1600, check=False, env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    rows = {row["part"]: row for row in map(json.loads, done.stdout.partition("\n\n")[0].splitlines())}
    states = {part: row["state"] for part, row in rows.items()}
    on_cuda = [part for part in states if "race" in part or "flash" in part]
    assert len(on_cuda) == 5
    assert states == {part: "not run" if part in on_cuda else "passed" for part in states}, done.stdout
    assert done.returncode == 3
    assert all(rows[part]["why"] for part in on_cuda)
    assert rows["twins"]["strict, differing tensors"] == 0
    assert rows["steps with determinism"]["attention"] == {"sdpa, deterministic": 2}
