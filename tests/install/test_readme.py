"""What the README tells a newcomer to type, typed: its commands and its Python, on a sweep made small."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.usefixtures("determinism_put_back")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = {
    "probes": ["--images", "4", "--draws", "2", "--sigma-grid", "0.5,0.9"],
    "train": ["--steps", "2", "--checkpoint-every", "1"],
}


def blocks(language):
    """The fenced blocks of ``language``."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [block for of, block in found if of == language]


def commands():
    """Every line of a plain block that calls one of the three commands, without its comment."""
    lines = [line.partition("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.split()[:1] in (["probes"], ["train"], ["analysis"])]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the newcomer types, with the examples in few steps."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "examples").mkdir()
    study = (ROOT / "examples" / "study.toml").read_text().replace("steps = 40", "steps = 2").replace("= 20", "= 1")
    (folder / "examples" / "study.toml").write_text(study)
    return folder


def small(name, arguments, folder):
    """What makes a command of README small, and its files that a newcomer has."""
    if arguments[:1] in (["arms"], ["study"], ["plan"]) or name == "analysis":
        return []
    if arguments[:1] == ["horizon"]:
        return ["--steps", "4", "--doses", "1/2,1", "--jitters", "0", "--seeds", "1"]
    if name == "probes" and "--out" not in arguments:
        return [*SMALL[name], "--out", f"other{len(list(folder.iterdir()))}.zarr"]
    return SMALL[name]


@pytest.mark.slow
def test_the_commands_run_in_the_order_they_stand(folder, monkeypatch, capsys):
    from importlib import import_module

    from analysis.entry import exit_code

    monkeypatch.chdir(folder)
    assert len(commands()) >= 5
    for name, *arguments in commands():
        for file in [each for each in arguments if each in ("mine.safetensors", "theirs.safetensors")]:
            shutil.copy(folder / "runs" / "study" / "s05" / "adapter.safetensors", file)
        code = exit_code(import_module(f"{name}.cli").app, [*arguments, *small(name, arguments, folder)], name=name)
        assert code == 0, (name, arguments, capsys.readouterr().err)
    # Four checkpoints of the README's run, two of this one, of an adapter and two moments, and the adapter at the end.
    tensors = len(load_file(folder / "runs" / "twin" / "adapter.safetensors"))
    assert f"0 / {tensors * (2 * 3 + 1)} tensors differ, max abs diff 0.0" in capsys.readouterr().out
    assert f"0 / {tensors * (4 * 3 + 1)} tensors differ" in README
    assert (folder / "demo" / "probe-safety.png").stat().st_size > 10_000
    assert (folder / "demo" / "probe-blocks.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_python_runs_on_what_the_commands_made(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (code,) = blocks("python")
    exec(code, {})
    assert "demote:56" in capsys.readouterr().out


def test_every_file_the_readme_points_to_is_there():
    root = Path(__file__).parents[2]
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", README) if "://" not in target]
    assert targets
    assert [target for target in targets if not (root / target).exists()] == []
