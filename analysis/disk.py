"""What can go wrong on a disk: it is full, the folder is missing or closed, the power goes.

with naming_the_disk(path):
    path.write_bytes(data)      # a full disk is now one line to the user
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.errors import UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST)


@contextmanager
def naming_the_disk(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing folder and a forbidden write into a UsageError that says which."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise UsageError(
                f"no space left to write {path}: what was complete is kept; free some space, then run it again"
            ) from error
        if error.errno in _CLOSED:
            raise UsageError(f"not allowed to write {path}: choose another place") from error
        if error.errno in _NO_FOLDER and not path.parent.is_dir():
            raise UsageError(f"no folder {path.parent} to write {path.name} in: make it first") from error
        raise


def check_folder(path: Path) -> None:
    """UsageError where there is no folder to write ``path`` in: asked before a long run, not after it."""
    if not path.absolute().parent.is_dir():
        raise UsageError(f"no folder {path.parent} to write {path.name} in: make it first")


def synchronise(path: Path) -> None:
    """Wait until a file or folder is on the disk, so that a power cut cannot reorder it after what follows."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def synchronise_tree(root: Path) -> None:
    """``synchronise`` everything below ``root`` and ``root`` itself."""
    for folder, _, files in os.walk(root):
        for name in files:
            synchronise(Path(folder, name))
        synchronise(Path(folder))
