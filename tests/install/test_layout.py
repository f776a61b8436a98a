"""The layout that keeps the house findable: names that say something, short files, no packages among the tests."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for name in ("probes", "train", "analysis") for path in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
NAMELESS = {"util", "utils", "core", "common", "helper", "helpers", "misc"}
LINES = 300


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_names_say_what_the_thing_is(path: Path) -> None:
    assert NAMELESS.isdisjoint({part.removesuffix(".py").strip("_") for part in path.relative_to(ROOT).parts})


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_files_are_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LINES


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_annotations_stay_objects(path: Path) -> None:
    """The shape checks read annotations at run time; the future import would make strings of them."""
    assert "from __future__ import annotations" not in path.read_text(encoding="utf-8")


def test_tests_are_no_packages_and_have_names_of_their_own() -> None:
    """An __init__.py under tests/train would be imported as `train`."""
    assert not [path for path in TESTS if path.name == "__init__.py"]
    names = [path.name for path in TESTS if path.name != "conftest.py"]
    assert len(names) == len(set(names))
