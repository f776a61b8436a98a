"""Where a cache may be written: nothing of a person's is removed or replaced, and no cache of other pictures."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.errors import UsageError
from train.cache import index
from train.cache.photographs import Photograph

FOLDERS = (index.LATENTS, index.TEXTS)
FILE, PARTIAL = re.compile(r"[0-9a-f]{32}\.safetensors"), re.compile(r"\.[0-9a-f]{32}\.partial\.safetensors")


def check_out(out: Path, family: str) -> str | None:
    """UsageError where ``out`` is anything but a cache of ``family``, finished or not, or nothing.

    Gives what is wrong with an index that is made anew because it cannot be read.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is no folder: give another --out")
    if (found := next(strange(out), None)) is not None:
        raise UsageError(f"{out} holds {found}, which is no part of a cache: give another --out")
    try:
        earlier = index.read(out) if (out / index.NAME).is_file() else None
    except index.Unreadable as error:
        return error.reason
    if earlier is not None and earlier.family != family:
        raise UsageError(f"{out} is a cache of {earlier.family}, the model is {family}: give another --out")
    return None


def strange(out: Path) -> Iterator[str]:
    """What ``out`` holds and no cache does; hidden files are left in peace."""
    for path in visible(out):
        if path.name in FOLDERS and path.is_dir():
            inside = (p for p in visible(path) if not (FILE.fullmatch(p.name) and p.is_file()))
            yield from (f"{path.name}/{p.name}" for p in inside)
        elif path.name != index.NAME or not path.is_file():
            yield path.name


def visible(folder: Path) -> list[Path]:
    """What is in ``folder`` and not hidden, if there is one."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".")) if folder.exists() else []


def check_pictures(out: Path, photographs: Iterable[Photograph]) -> None:
    """UsageError where ``out`` is a cache of pictures of which none is among ``photographs``."""
    try:
        there = index.read(out).images if (out / index.NAME).is_file() else {}
    except index.Unreadable:
        return
    if there and {image.sha256 for image in there.values()}.isdisjoint(each.sha256 for each in photographs):
        raise UsageError(
            f"{out} is a cache of {len(there)} other pictures, and of none of these: give another --out, or remove "
            "that folder first"
        )


def tidy(cache: Path, made: index.Index) -> int:
    """Remove the files of latents and texts that the index does not name; how many there were."""
    wanted = {cache / file.path for image in made.images.values() for file in image.files()}
    found = [path for folder in FOLDERS for path in (cache / folder).iterdir() if path not in wanted]
    left = [path for path in found if FILE.fullmatch(path.name) or PARTIAL.fullmatch(path.name)]
    for path in left:
        path.unlink()
    return len(left)
