"""Studies from end to end: processes, what is skipped, what fails, and what is left running, which is nothing."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from analysis.entry import exit_code
from analysis.file_pairs import compared
from train.cli import app
from train.settings import Settings
from train.study import conduct, progress, runs

TRAIN = [sys.executable, "-P", "-c", "from train.cli import main; main()"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def file_of(tmp_path, tiny, arms, **changes):
    base = {"model": str(tiny), "steps": 3, "rank": 2, "learning_rate": 1e-3, "checkpoint_every": 2}
    shared = "\n".join(f"{name} = {json.dumps(value)}" for name, value in (base | changes).items())
    path = tmp_path / "study.toml"
    path.write_text(f"[settings]\n{shared}\n{arms}", encoding="utf-8")
    return path


def study(path, out, *more):
    command = [*TRAIN, "study", str(path), "--out", str(out), *more]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)


def test_a_study_runs_skips_what_is_done_and_reports_what_fails(tiny, tmp_path, capsys, monkeypatch):
    arms = "[[arms]]\nname = 'native'\n[[arms]]\nname = 'wrong'\nimages = 99\n"
    path, out = file_of(tmp_path, tiny, arms), tmp_path / "deep" / "out"
    (tmp_path / "train.py").write_text("raise SystemExit('this is another train.py')")
    monkeypatch.chdir(tmp_path)
    assert exit_code(app, ["study", str(path), "--out", str(out), "--jobs", "2"], name="train") == 2
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert sorted(line.split(":")[0] for line in lines[:2]) == ["native", "wrong"]
    assert any(line.startswith("native: 3 steps, ") for line in lines[:2])
    assert lines[2] == f"wrong failed: --images 99: the corpus has 5; ask for fewer ({out / 'wrong.log'})"
    assert lines[3].startswith("train: 1 of 2 runs failed: wrong;")
    assert (len(lines), told.out) == (4, "")
    assert json.loads((out / "native" / "summary.json").read_text())["steps"] == 3
    assert "--images 99" in (out / "wrong.log").read_text()
    assert {path.name for path in out.iterdir()} == {"native", "native.log", "wrong.log"}

    monkeypatch.setattr(conduct, "RunProcess", None)  # what is done needs no process
    path = file_of(tmp_path, tiny, "[[arms]]\nname = 'native'\n")
    assert exit_code(app, ["study", str(path), "--out", str(out)], name="train") == 0
    assert capsys.readouterr().err == "native: its 3 steps were done before\n"


def test_a_study_that_is_done_imports_no_torch(finished):
    _, folder = finished
    path = folder.with_name("study.toml")
    path.write_text("settings.steps = 3\nsettings.latents = 'x'\n[[arms]]\nname = 'a'\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom train.study.conduct import study\n"
        f"study(Path({str(path)!r}), Path({str(folder.parent)!r}), jobs=1, dry_run=False)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "a: its 3 steps were done before\n")


@pytest.fixture
def finished(tmp_path):
    """A run's folder as far as ``is_done`` looks at it."""
    run, folder = runs.Run("a", Settings(steps=3, latents="x", threads=1)), tmp_path / "a"
    folder.mkdir()
    settings = {name: value for name, value in vars(run.settings).items() if name not in runs.NOT_A_RECORDED_SETTING}
    command = "train --steps 3 --latents x --threads 1 --resume --out elsewhere/a"
    (folder / "run.json").write_text(json.dumps({"command": command, "settings": settings, "code": {"version": "0"}}))
    (folder / "summary.json").write_text('{"steps": 3}')
    (folder / "adapter.safetensors").touch()
    return run, folder


def test_a_run_is_done_when_it_is_this_one_and_finished(finished):
    run, folder = finished
    assert runs.is_done(run, folder)
    for name, value in (("steps", 4), ("latents", "y"), ("threads", 2), ("model", "m"), ("adapter", "b"), ("rank", 3)):
        assert not runs.is_done(runs.Run("a", Settings(**(vars(run.settings) | {name: value}))), folder)
    (folder / "adapter.safetensors").unlink()  # what it was made for
    assert not runs.is_done(run, folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [("summary.json", '{"steps": 2}'), ("summary.json", "{"), ("summary.json", "[]"), ("run.json", "{}")],
)
def test_a_run_with_other_records_is_not_done(finished, name, text):
    run, folder = finished
    (folder / name).write_text(text)
    assert not runs.is_done(run, folder)
    (folder / name).unlink()
    assert not runs.is_done(run, folder)


def test_the_last_step_is_that_of_the_last_whole_line(tmp_path, monkeypatch):
    assert progress.last_step(tmp_path) == {}
    log = tmp_path / "metrics.jsonl"
    for text, step in (("", None), ('{"step": 1', None), ('{"step": 1}\n', 1), ('{"step": 1}\n{"step": 2}\n{"st', 2)):
        log.write_text(text)
        assert progress.last_step(tmp_path).get("step") == step
    monkeypatch.setattr(progress, "TAIL", 30)
    log.write_text("".join(f'{{"step": {i}}}\n' for i in range(1, 12)))
    assert progress.last_step(tmp_path)["step"] == 11
    log.write_text(f'{{"step": 1, "losses": "{"x" * 40}"}}\n')
    assert progress.last_step(tmp_path) == {}


def begun(path, out, *more):
    """A study in a group of its own, as a terminal starts one."""
    command = [*TRAIN, "study", str(path), "--out", str(out), *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, process_group=0)


def wait_until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def steps_of(folder):
    return progress.last_step(folder).get("step", 0)


TWO = "[[arms]]\nname = 'native'\n[[arms]]\nname = 's04'\narm = 'demote:56@0.4'\n"


@pytest.mark.slow
def test_a_study_that_is_killed_leaves_nobody_and_ends_at_the_same_bytes(tiny, tmp_path):
    path = file_of(tmp_path, tiny, TWO, steps=800, checkpoint_every=10)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert study(path, whole, "--jobs", "2").returncode == 0
    unfinished = 0
    # Ctrl-C reaches the whole group. A kill reaches the study alone.
    for kill, code in ((lambda p: os.killpg(p.pid, signal.SIGINT), 130), (lambda p: p.kill(), -9),
                       (lambda p: p.terminate(), -15)):  # fmt: skip
        before = [steps_of(broken / name) for name in ("native", "s04")]
        with begun(path, broken, "--jobs", "2") as process:
            # The log is cut to the last checkpoint first, so that more than before is new. On a busy machine one run
            # may be through before the other has begun.
            wait_until(lambda before=before: any(
                steps_of(broken / name) > step for name, step in zip(("native", "s04"), before, strict=True)
            ))  # fmt: skip
            children = psutil.Process(process.pid).children()
            assert children
            kill(process)
            process.communicate()
        assert process.returncode == code
        wait_until(lambda children=children: not any(child.is_running() for child in children))
        unfinished += sum(not (broken / name / "summary.json").exists() for name in ("native", "s04"))
    assert unfinished >= 3  # at each kill at least one run was under way
    assert study(path, broken, "--jobs", "1").returncode == 0
    for name in ("native", "s04"):
        assert compared(whole / name, broken / name).identical


@pytest.mark.slow
def test_two_studies_do_not_share_a_folder_and_a_killed_run_is_a_failed_one(tiny, tmp_path):
    path, out = file_of(tmp_path, tiny, TWO, steps=400, checkpoint_every=10), tmp_path / "out"
    with begun(path, out) as process:
        wait_until(lambda: steps_of(out / "native") > 0)
        second = study(path, out)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "is being written by another process" in second.stderr
        psutil.Process(process.pid).children()[0].kill()
        told = process.communicate()[1]
    assert process.returncode == 2
    assert "native failed: ended by signal 9" in told
    assert (out / "s04" / "summary.json").exists()


@pytest.mark.slow
def test_runs_that_are_all_refused_are_a_refusal(tiny, tmp_path):
    arms = "[[arms]]\nname = 'racing'\nattention = 'racing'\ndeterministic = true\n"
    done = study(file_of(tmp_path, tiny, arms), tmp_path / "out")
    assert done.returncode == 3
    assert "racing failed: --deterministic with attention racing: it cannot be" in done.stderr


@pytest.mark.slow
def test_a_full_disk_is_told_in_the_runs_own_words(tiny, tmp_path):
    """A limit on the size of files stands in for the disk: EFBIG, for ENOSPC."""
    path, out = file_of(tmp_path, tiny, "[[arms]]\nname = 'native'\n"), tmp_path / "out"
    command = [*TRAIN, "study", str(path), "--out", str(out)]
    limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$@"', "sh", *command]
    done = subprocess.run(limited, check=False, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 2
    last = (out / "native.log").read_text().splitlines()[-1].removeprefix("train: ")
    assert "no space left to write" in last
    assert f"native failed: {last} (" in done.stderr
