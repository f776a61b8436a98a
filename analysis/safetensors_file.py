"""Safetensors files read without a deep-learning library: the header whole and checked, the tensors a piece at a time.

    with opened(Path("adapter.safetensors")) as file:
        file.tensors["proj_out.weight"].read_into(0, memoryview(buffer))   # its first bytes

The format (https://huggingface.co/docs/safetensors): 8 bytes N, little-endian; N bytes of JSON, which gives each
tensor its dtype, shape and place; then the tensors without gaps. The safetensors package's numpy reader is not used:
it has no bfloat16, and maps the file, which must then not shrink under it.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from analysis.bytewise import Layout, RawTensor
from analysis.dtypes import BITS
from analysis.errors import UsageError

HEADER_LIMIT = 100_000_000
"""Bytes, the format's own bound."""
METADATA = "__metadata__"
_LARGEST = 2**63
"""Bytes; no file is as large, and arithmetic stays quick below."""


@dataclass(frozen=True)
class SafetensorsFile:
    """``tensors`` by name in the order of their bytes, readable while the file is open; ``metadata`` is free text."""

    tensors: Mapping[str, RawTensor]
    metadata: Mapping[str, str]

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.layout.bytes for tensor in self.tensors.values())


@contextmanager
def opened(path: Path) -> Iterator[SafetensorsFile]:
    """Open a file and check its header.

    Raises UsageError, one line, for anything but a whole safetensors file, and later if a tensor cannot be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is no file: give a safetensors file")
        file = FileIO(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): give a safetensors file") from None
    with file:
        try:
            found = _File(file, path)
            yield SafetensorsFile(found.tensors(), found.metadata)
        except _Damaged as error:
            raise UsageError(f"{path} is no whole safetensors file: {error}") from None


class _Damaged(Exception):
    """What is wrong with a file."""


class _File:
    """An open file and its parsed header, whose entries are not checked yet."""

    def __init__(self, file: FileIO, path: Path) -> None:
        self.file, self.path = file, path
        self.size = os.fstat(file.fileno()).st_size
        if self.size < 8:
            raise _Damaged(f"{self.size} bytes are too few for a header")
        length = int.from_bytes(self.read(0, 8), "little")
        if length > HEADER_LIMIT:
            raise _Damaged(f"its header would have {length} bytes, {HEADER_LIMIT} are allowed")
        self.data = 8 + length
        if self.data > self.size:
            raise _Damaged(f"cut off within its header: {self.data} bytes announced, {self.size} there")
        self.header = _json(self.read(8, self.data))
        self.metadata = _metadata(self.header.pop(METADATA, None))

    def tensors(self) -> dict[str, RawTensor]:
        """By name, in the order of their bytes."""
        places = {name: _place(name, entry) for name, entry in self.header.items()}
        tensors: dict[str, RawTensor] = {}
        reached = 0
        for name, (start, stop, layout) in sorted(places.items(), key=lambda item: item[1][:2]):
            if start != reached:
                raise _Damaged(f"{name!r:.80} begins at byte {start} of the data, expected {reached}")
            tensors[name] = RawTensor(layout, self._reader(self.data + start))
            reached = stop
        if self.data + reached != self.size:
            raise _Damaged(f"its header describes {self.data + reached} bytes, {self.size} are there")
        return tensors

    def read(self, start: int, stop: int) -> bytes:
        """Bytes of the file."""
        data = bytearray(stop - start)
        self.read_into(start, memoryview(data))
        return bytes(data)

    def read_into(self, start: int, buffer: memoryview) -> None:
        """Fill ``buffer`` from ``start`` on. Raises UsageError if the disk fails or the file was shortened since."""
        try:
            self.file.seek(start)
            while buffer:
                count = self.file.readinto(buffer)
                if not count:
                    raise UsageError(f"{self.path} became shorter while it was read: wait until it is written")
                buffer = buffer[count:]
        except OSError as error:
            raise UsageError(f"{self.path} cannot be read ({error.strerror})") from None

    def _reader(self, begin: int) -> Callable[[int, memoryview], None]:
        return lambda start, buffer: self.read_into(begin + start, buffer)


def _json(text: bytes) -> dict[str, Any]:
    """The header; every name once."""
    if not text.startswith(b"{"):
        raise _Damaged("its header is no JSON object")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_unique)
        json.dumps(header, ensure_ascii=False).encode()  # no half of a surrogate pair, which cannot be printed
    except (ValueError, RecursionError) as error:
        raise _Damaged(f"its header is no valid JSON ({str(error).splitlines()[0]:.80})") from None
    return header


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _metadata(entry: Any) -> dict[str, str]:
    metadata = {} if entry is None else entry
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _Damaged("its metadata are not pairs of texts")
    return metadata


def _place(name: str, entry: Any) -> tuple[int, int, Layout]:
    """Where a tensor starts and stops in the data, and its layout, which takes just that many bytes."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [start, stop]}:
            pass
        case _:
            raise _Damaged(f"the entry of {name!r:.80} is not a dtype, a shape and two offsets")
    if dtype not in BITS:
        raise _Damaged(f"{name!r:.80} has dtype {dtype!r:.40}; known are {', '.join(BITS)}")
    if not all(type(number) is int and 0 <= number < _LARGEST for number in (*shape, start, stop)):
        raise _Damaged(f"shape or offsets of {name!r:.80} are not whole numbers of a possible size")
    bits = BITS[dtype]
    for length in shape:
        bits *= length
        if bits >= 8 * _LARGEST:
            raise _Damaged(f"{name!r:.80} is larger than any file")
    if bits != 8 * (stop - start):
        raise _Damaged(f"{name!r:.80}, {dtype} {shape!s:.80}, does not fit bytes {start} to {stop} of the data")
    return start, stop, Layout(dtype, tuple(shape))
