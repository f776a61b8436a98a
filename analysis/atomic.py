"""Files that are there whole or not at all.

with replacing(Path("curve.png")) as partial:
    figure.savefig(partial)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analysis.disk import naming_the_disk, synchronise
from analysis.errors import UsageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A hidden temporary sibling of ``path``, of the same suffix, that takes its place when the block ends well.

    What stood at ``path`` stays until then, and after any failure. The next writer overwrites what a killed one left.
    Raises UsageError if ``path`` is a folder or a device, its folder is missing or not writable, or the disk is full.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{path} is {kind}, which is not replaced: give the name of a file")
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    with naming_the_disk(path):
        try:
            yield partial
            synchronise(partial)
            partial.replace(path)
            synchronise(path.parent)
        finally:
            partial.unlink(missing_ok=True)
