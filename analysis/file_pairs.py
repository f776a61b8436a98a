"""Two places compared: a safetensors file each, or a folder each, whose files are paired by their relative paths.

    found = compared(Path("runs/a"), Path("runs/b"))
    found.identical

In folders every ``*.safetensors`` counts, at any depth. Hidden files and folders, such as an interrupted write leaves,
and files of other kinds do not. What is damaged is found before anything long is read.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from analysis.bytewise import Comparison, compare
from analysis.errors import UsageError
from analysis.safetensors_file import opened

SUFFIX = ".safetensors"
PATIENCE = 2.0
"""Seconds before a progress bar shows."""


@dataclass(frozen=True)
class MetadataChange:
    """Entries of the headers' free text: ``changed`` holds both values by key, the others keys of one side."""

    changed: Mapping[str, tuple[str, str]]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]

    @property
    def identical(self) -> bool:
        return not (self.changed or self.only_in_a or self.only_in_b)


@dataclass(frozen=True)
class FilePair:
    """``name`` is the path below both folders, or empty where two files were given."""

    name: str
    tensors: Comparison
    metadata: MetadataChange


@dataclass(frozen=True)
class Pairs:
    """All that was compared, and the files that have no partner."""

    files: tuple[FilePair, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether both places hold the same tensors; metadata apart."""
        return not (self.only_in_a or self.only_in_b) and all(pair.tensors.identical for pair in self.files)

    @property
    def metadata_identical(self) -> bool:
        return all(pair.metadata.identical for pair in self.files)


def compared(a: Path, b: Path) -> Pairs:
    """Compare two files or two folders.

    Raises UsageError if they are neither, a folder holds no safetensors file, or a file is damaged. A progress bar
    shows on a terminal when it takes longer.
    """
    if _is_folder(a) != _is_folder(b):
        file, folder = (b, a) if _is_folder(a) else (a, b)
        raise UsageError(f"{file} is a file and {folder} a folder: give two files or two folders")
    files_a, files_b = _files(a), _files(b)
    names = [name for name in files_a if name in files_b]
    size = sum(_shared_bytes(files_a[name], files_b[name]) for name in names)
    with _progress(size) as tell:
        pairs = tuple(_pair(name, files_a[name], files_b[name], tell) for name in names)
    only_in_a = tuple(name for name in files_a if name not in files_b)
    return Pairs(pairs, only_in_a, tuple(name for name in files_b if name not in files_a))


def _files(place: Path) -> dict[str, Path]:
    """Safetensors files by their path below ``place``, sorted; by the empty name if it is a file itself."""
    if not _is_folder(place):
        return {"": place}
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(place, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [Path(folder, name) for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
        found |= {file.relative_to(place).as_posix(): file for file in files}
    if not found:
        raise UsageError(f"{place} holds no {SUFFIX} file: give a safetensors file, or a folder of them")
    return dict(sorted(found.items()))


def _is_folder(place: Path) -> bool:
    try:
        return stat.S_ISDIR(place.stat().st_mode)
    except OSError as error:
        raise UsageError(f"{place} cannot be read ({error.strerror}): give a safetensors file or a folder") from None


def _unreadable(error: OSError) -> None:
    raise UsageError(f"{error.filename} cannot be read ({error.strerror})")


def _shared_bytes(a: Path, b: Path) -> int:
    """Bytes, of one side, to compare. Reads both headers, which raises UsageError for damaged files."""
    with opened(a) as file_a, opened(b) as file_b:
        return sum(tensor.layout.bytes for name, tensor in file_a.tensors.items() if name in file_b.tensors)


def _pair(name: str, a: Path, b: Path, tell: Callable[[int], object]) -> FilePair:
    with opened(a) as file_a, opened(b) as file_b:
        metadata = _metadata_change(file_a.metadata, file_b.metadata)
        return FilePair(name, compare(file_a.tensors, file_b.tensors, tell), metadata)


def _metadata_change(a: Mapping[str, str], b: Mapping[str, str]) -> MetadataChange:
    return MetadataChange(
        {key: (a[key], b[key]) for key in sorted(a.keys() & b.keys()) if a[key] != b[key]},
        tuple(sorted(a.keys() - b.keys())),
        tuple(sorted(b.keys() - a.keys())),
    )


@contextmanager
def _progress(size: int) -> Iterator[Callable[[int], object]]:
    """A bar over ``size`` bytes on standard error, if that is a terminal."""
    from tqdm import tqdm

    with tqdm(total=size, unit="B", unit_scale=True, delay=PATIENCE, disable=None, dynamic_ncols=True) as bar:
        yield bar.update
