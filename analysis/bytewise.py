"""Two collections of named tensors compared byte by byte: one answer for files and for what a trainer holds.

    found = compare(a, b)       # two mappings, name -> RawTensor
    found.identical             # every byte, dtype and shape, and no name on one side only

Bytes are compared as bytes: -0.0 is not 0.0, and NaN equals NaN of the same bits. Files hand in tensors that are read
when they are asked for (``analysis.safetensors_file``), so little memory is needed; tensors in memory are handed in by
``held``, whatever library they come from.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from analysis.blocks import block_of
from analysis.distance import NONE, Distance, distance
from analysis.dtypes import BITS

CHUNK = 512 * 1024
"""Bytes compared at a time: two fit into a processor's cache, and hold whole elements of every dtype with values."""


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
    """A tensor as little-endian bytes; ``read(start, stop)`` gives those of them, 0 <= start < stop <= layout.bytes."""

    layout: Layout
    read: Callable[[int, int], bytes]


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
    return RawTensor(layout, lambda start, stop: flat[start:stop].tobytes())


def compare(
    a: Mapping[str, RawTensor], b: Mapping[str, RawTensor], tell: Callable[[int], object] = lambda compared: None
) -> Comparison:
    """Compare tensors of equal names, a chunk at a time. ``tell`` is told of bytes (of one side) as they are done."""
    shared = [name for name in a if name in b]
    found = (_difference(name, a[name], b[name], tell) for name in shared)
    return Comparison(
        len(shared),
        tuple(difference for difference in found if difference is not None),
        tuple(name for name in a if name not in b),
        tuple(name for name in b if name not in a),
    )


def _difference(name: str, a: RawTensor, b: RawTensor, tell: Callable[[int], object]) -> Difference | None:
    size = a.layout.bytes
    if a.layout != b.layout:
        tell(size)
        return Difference(name, a.layout, b.layout, None)
    total: Distance | None = None
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        left, right = a.read(start, stop), b.read(start, stop)
        if left != right:
            total = (total or NONE) + distance(a.layout.dtype, left, right)
        tell(stop - start)
    return None if total is None else Difference(name, a.layout, b.layout, total)
