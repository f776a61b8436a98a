"""One writer at a time.

    with writing(Path("run.zarr")):
        ...        # another process that asks for the same lock gets a UsageError at once

The lock is the kernel's (flock) on a hidden file beside the store, so it ends with its process, however that ends.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.disk import naming_the_disk
from analysis.errors import UsageError

_held: set[Path] = set()


def lock_file(path: Path) -> Path:
    """The file whose lock guards ``path``."""
    return path.with_name(f".{path.name}.lock")


@contextmanager
def writing(path: Path) -> Iterator[bool]:
    """Hold the lock of ``path``; yields whether this call took it (False: this process holds it already).

    Raises UsageError if another process holds it.
    """
    path = path.absolute()
    if path in _held:
        yield False
        return
    descriptor = _take(path)
    _held.add(path)
    try:
        yield True
    finally:
        _held.discard(path)
        lock_file(path).unlink(missing_ok=True)
        os.close(descriptor)


def _take(path: Path) -> int:
    """Descriptor of the locked lock file, the one that other processes find on the disk."""
    import fcntl

    name = lock_file(path)
    while True:
        try:
            with naming_the_disk(path):
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError as error:
            raise UsageError(f"{path.parent} takes no files: choose another place than {path}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UsageError(f"{path} is being written by another process: wait for it, or write elsewhere") from error
        # A holder removes the file before it lets go. If that came between our two calls, ours is a file nobody finds.
        try:
            if os.path.samestat(os.fstat(descriptor), name.stat()):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)
