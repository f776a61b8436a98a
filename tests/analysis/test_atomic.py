"""A file is replaced whole or stays as it was."""

import os
from pathlib import Path

import pytest

from analysis.atomic import replacing
from analysis.errors import UsageError


def test_the_new_file_is_renamed_into_place(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_text("old")
    (tmp_path / ".a.partial.png").write_text("left by a writer that was killed")
    with replacing(path) as partial:
        partial.write_text("new")
        written = partial.stat().st_ino
        assert path.read_text() == "old"
        assert partial.suffix == ".png"
    assert path.read_text() == "new"
    assert path.stat().st_ino == written
    assert list(tmp_path.iterdir()) == [path]


def _write_half(path: Path) -> None:
    path.write_text("half")
    raise TypeError


def test_a_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_text("old")
    with pytest.raises(TypeError), replacing(path) as partial:
        _write_half(partial)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("number", "message"),
    [(28, "no space left to write .*a.png"), (122, "no space left"), (13, "not allowed to write .*a.png")],
)
def test_what_the_disk_refuses_is_one_line(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(UsageError, match=message), replacing(tmp_path / "a.png"):
        raise OSError(number, "as the system says it")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no folder .*nowhere"), replacing(tmp_path / "nowhere" / "a.png") as partial:
        partial.write_text("new")


def test_other_errors_of_the_system_pass(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError), replacing(tmp_path / "a.png"):
        raise IsADirectoryError(21, "Is a directory")


def test_a_folder_or_a_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("folder", "a folder"), ("pipe", "no regular file")):
        with (
            pytest.raises(UsageError, match=f"{name} is {kind}, which is not replaced"),
            replacing(tmp_path / name) as partial,
        ):
            partial.write_text("x")
        assert not list(tmp_path.glob(".*"))
    assert (tmp_path / "pipe").is_fifo()
