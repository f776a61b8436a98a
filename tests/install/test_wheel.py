"""The built wheel, installed in a fresh environment: three commands that work from any folder.

The fresh environment sees the dependencies of the one that runs the tests through a .pth file, which saves a download
and cannot bring this project in with it: a .pth file found through another .pth file is not read. The long test at the
end does without that and installs everything.
"""

import os
import resource
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("probes", "train", "analysis")
HELP = [[name, "--help"] for name in PACKAGES] + [["probes", "grad", "--help"], ["analysis", "safety", "--help"]]
HEAVY = {"numpy", "scipy", "xarray", "zarr", "pandas", "matplotlib", "torch", "diffusers", "peft", "transformers"}
HELP_SECONDS = 0.5
WHEEL_BYTES = 10 * 2**20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this working tree, built outside of it."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)], cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    run([sys.executable, "-m", "pip", "--python", python, *install], cwd=folder)
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], cwd=folder).strip())
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def decoys(tmp_path: Path) -> Path:
    """A folder with files that bear the packages' names, as a user's own folder may."""
    for name in PACKAGES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a decoy was imported')\n", encoding="utf-8")
    return tmp_path


def run(command: list[str], cwd: Path) -> str:
    """Standard output of a command that must succeed; nothing of this environment's paths reaches it."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=cwd, env=inherited, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def shipped() -> set[str]:
    """Every file of the three packages in the working tree, as a wheel names it."""
    files = (path for name in PACKAGES for path in (ROOT / name).rglob("*") if path.is_file())
    return {path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts}


def test_wheel_holds_the_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - metadata == shipped()
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


def test_wheel_holds_the_mini_model(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        mini = [name.removeprefix("train/mini/") for name in archive.namelist() if name.startswith("train/mini/")]
    assert any(name.endswith(".safetensors") for name in mini), mini
    assert any(name.endswith(".png") for name in mini), mini
    assert "MODEL_CARD.md" in mini


def test_wheel_is_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= WHEEL_BYTES


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_come_from_the_fresh_environment(environment: Path, decoys: Path, name: str) -> None:
    python = str(environment / "bin" / "python")
    origin = Path(run([python, "-P", "-c", f"import {name}; print({name}.__file__)"], cwd=decoys).strip())
    assert origin.is_relative_to(environment)


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_works_beside_decoys(environment: Path, decoys: Path, command: list[str]) -> None:
    shown = run([str(environment / "bin" / command[0]), *command[1:]], cwd=decoys)
    assert " ".join(["Usage:", *command[:-1]]) in shown


@pytest.mark.parametrize("name", PACKAGES)
def test_command_line_imports_nothing_heavy(environment: Path, decoys: Path, name: str) -> None:
    python = str(environment / "bin" / "python")
    loaded = run([python, "-P", "-c", f"import sys, {name}.cli; print(*sys.modules)"], cwd=decoys).split()
    assert f"{name}.cli" in loaded
    assert HEAVY.isdisjoint(loaded)


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_is_quick(environment: Path, decoys: Path, command: list[str]) -> None:
    """Processor time, user and system, of the best of five: what else the machine does only adds to it."""
    script = [str(environment / "bin" / command[0]), *command[1:]]
    run(script, cwd=decoys)  # the first run may have byte code to write
    assert min(processor_seconds(script, decoys) for _ in range(5)) < HELP_SECONDS


def processor_seconds(command: list[str], cwd: Path) -> float:
    """User and system time of one child, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, cwd)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


PROBE = ["grad", "--sigma-grid", "0.5,0.9", "--arm", "redraw", "--images", "4", "--draws", "2", "--out", "probe.zarr"]


def test_probe_runs_on_the_shipped_mini_model(environment: Path, decoys: Path) -> None:
    run([str(environment / "bin" / "probes"), *PROBE], cwd=decoys)
    table = run([str(environment / "bin" / "analysis"), "safety", "probe.zarr"], cwd=decoys)
    assert "redraw" in table


@pytest.mark.slow
def test_declared_dependencies_are_enough(wheel: Path, decoys: Path) -> None:
    """Nothing but what pip installs for the wheel: a dependency that only the tests bring would be missed here."""
    folder = decoys / "venv"
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*pip, "--constraint", str(ROOT / "constraints.txt"), "torch==2.13.0"], cwd=decoys)
    run([*pip, "--constraint", str(ROOT / "constraints.txt"), str(wheel)], cwd=decoys)
    run([str(folder / "bin" / "probes"), *PROBE], cwd=decoys)
    run([str(folder / "bin" / "analysis"), "safety", "probe.zarr"], cwd=decoys)
    run([str(folder / "bin" / "train"), "--help"], cwd=decoys)
