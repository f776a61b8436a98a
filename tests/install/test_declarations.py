"""What pyproject.toml declares, against what the code imports and constraints.txt pins."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("probes", "train", "analysis")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
DISTRIBUTIONS = packages_distributions()
# Names of an extra are imported only in the part of the tree that the extra is for.
EXTRA_OF_FOLDER = {"train/mini": "mini", "analysis/notebooks": "notebooks", "train/attention": "flash"}


def pins() -> dict[str, str]:
    """Name and version of every line of constraints.txt that is not a comment."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.]*)", line) for line in lines if line[:1] != "#"]
    assert all(pinned), "a line of constraints.txt is not name==version"
    return {canonicalize_name(match[1]): match[2] for match in pinned if match}


def imported(path: Path) -> set[str]:
    """Top-level names of all imports of a file, those inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_import_is_declared(path: Path) -> None:
    declared = {canonicalize_name(requirement.name) for requirement in BASE}
    for folder, extra in EXTRA_OF_FOLDER.items():
        if path.is_relative_to(ROOT / folder):
            declared |= {canonicalize_name(requirement.name) for requirement in EXTRAS[extra]}
    for name in imported(path) - set(sys.stdlib_module_names) - set(PACKAGES):
        owners = {canonicalize_name(owner) for owner in DISTRIBUTIONS.get(name, [name])}
        assert owners & declared, f"{name} is imported but no declared dependency brings it"


@pytest.mark.parametrize("group", ["base", *(name for name in EXTRAS if name != "flash")])
def test_every_dependency_is_pinned_within_its_range(group: str) -> None:
    pinned = pins()
    for requirement in BASE if group == "base" else EXTRAS[group]:
        if requirement.name == PROJECT["name"]:
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"{requirement} does not admit the pinned {version}"


def test_make_installs_the_pinned_torch_first() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert f"torch=={pins()['torch']}" in makefile
    assert makefile.index("torch==") < makefile.index("--editable .")
