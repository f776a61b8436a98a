"""Two collections of named tensors compared byte by byte: one answer for files and for what a trainer holds.

    found = compare(a, b)       # two mappings, name -> RawTensor
    found.identical             # every byte, dtype and shape, and no name on one side only

Bytes are compared as bytes: -0.0 is not 0.0, and NaN equals NaN of the same bits. Files hand in tensors that are read
when they are asked for (``analysis.safetensors_file``), so little memory is needed; tensors in memory are handed in by
``held``, whatever library they come from.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from analysis.blocks import block_of
from analysis.distance import NONE, Distance, distance
from analysis.dtypes import BITS

CHUNK = 256 * 1024
"""Bytes compared at a time: two lie in a processor's cache. Whole elements of every dtype that has values."""
PIECE = 8192
"""Elements whose values are read at a time: arrays this small are made from memory at hand, several times faster."""

Buffers = tuple[bytearray, bytearray]


@dataclass(frozen=True)
class Layout:
    """dtype by its safetensors name, and shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Rounded up where an element is no whole byte. KeyError for an unknown dtype."""
        return -(-self.elements * BITS[self.dtype] // 8)

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


@dataclass(frozen=True)
class RawTensor:
    """A tensor as little-endian bytes: ``read_into(start, buffer)`` fills ``buffer`` with those from ``start`` on."""

    layout: Layout
    read_into: Callable[[int, memoryview], None]


@dataclass(frozen=True)
class Difference:
    """A tensor that both sides have and that is not the same; ``distance`` is None where the layouts differ."""

    name: str
    a: Layout
    b: Layout
    distance: Distance | None

    @property
    def block(self) -> str:
        return block_of(self.name)


@dataclass(frozen=True)
class Comparison:
    """``tensors`` counts the names on both sides; ``differences`` and ``only_in_a`` stand in the order of a."""

    tensors: int
    differences: tuple[Difference, ...]
    only_in_a: tuple[str, ...]
    only_in_b: tuple[str, ...]

    @property
    def identical(self) -> bool:
        return not (self.differences or self.only_in_a or self.only_in_b)

    @property
    def distance(self) -> Distance:
        """Over all tensors of equal layout."""
        return reduce(Distance.__add__, (each.distance for each in self.differences if each.distance is not None), NONE)


def held(dtype: str, shape: tuple[int, ...], data: np.ndarray) -> RawTensor:
    """A tensor in memory: its bytes as an array of any numpy dtype (uint8, say, for bfloat16), which is not copied.

    ValueError if there are not as many bytes as ``dtype`` and ``shape`` need.
    """
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    layout = Layout(dtype, shape)
    if flat.size != layout.bytes:
        raise ValueError(f"{flat.size} bytes given for {layout}, which takes {layout.bytes}")

    def read_into(start: int, buffer: memoryview) -> None:
        buffer[:] = flat[start : start + len(buffer)].data

    return RawTensor(layout, read_into)


def compare(
    a: Mapping[str, RawTensor], b: Mapping[str, RawTensor], tell: Callable[[int], object] = lambda compared: None
) -> Comparison:
    """Compare tensors of equal names, a chunk at a time. ``tell`` is told of bytes (of one side) as they are done."""
    shared = [name for name in a if name in b]
    buffers = bytearray(CHUNK), bytearray(CHUNK)
    found = (_difference(name, a[name], b[name], buffers, tell) for name in shared)
    return Comparison(
        len(shared),
        tuple(difference for difference in found if difference is not None),
        tuple(name for name in a if name not in b),
        tuple(name for name in b if name not in a),
    )


def digests(tensors: Mapping[str, RawTensor]) -> dict[str, bytes]:
    """SHA-256 of each tensor's layout and bytes: two are equal where ``compare`` finds no difference, and only there.

    For many collections, each of which is then read once.
    """
    return {name: _digest(tensor) for name, tensor in tensors.items()}


def _digest(tensor: RawTensor) -> bytes:
    found = hashlib.sha256(str(tensor.layout).encode())
    size, buffer = tensor.layout.bytes, bytearray(CHUNK)
    for start in range(0, size, CHUNK):
        piece = memoryview(buffer)[: min(CHUNK, size - start)]
        tensor.read_into(start, piece)
        found.update(piece)
    return found.digest()


def _difference(
    name: str, a: RawTensor, b: RawTensor, buffers: Buffers, tell: Callable[[int], object]
) -> Difference | None:
    size = a.layout.bytes
    if a.layout != b.layout:
        tell(size)
        return Difference(name, a.layout, b.layout, None)
    total: Distance | None = None
    for start in range(0, size, CHUNK):
        length = min(CHUNK, size - start)
        for tensor, buffer in zip((a, b), buffers, strict=True):
            tensor.read_into(start, memoryview(buffer)[:length])
        if not _equal(*buffers, length):
            total = (total or NONE) + _distance(a.layout.dtype, buffers, length)
        tell(length)
    return None if total is None else Difference(name, a.layout, b.layout, total)


def _equal(a: bytearray, b: bytearray, length: int) -> bool:
    """Of the first bytes. Whole buffers are compared where they lie, without a copy."""
    return a == b if length == CHUNK else a[:length] == b[:length]


def _distance(dtype: str, buffers: Buffers, length: int) -> Distance:
    a, b = (memoryview(buffer)[:length] for buffer in buffers)
    step = PIECE * max(BITS[dtype] // 8, 1)
    starts = range(0, length, step)
    return reduce(Distance.__add__, (distance(dtype, a[s : s + step], b[s : s + step]) for s in starts))
