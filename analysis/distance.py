"""How far two arrays that are not byte-equal lie apart, as far as a number can say.

A number alone would lie: NaN has no distance, infinity an infinite one, and -0.0 and 0.0 none although their bytes
differ. So what it leaves out is counted beside it.
"""

from dataclasses import dataclass

import numpy as np

from analysis.dtypes import has_values, patterns, values


@dataclass(frozen=True)
class Distance:
    """Counts of elements whose bytes differ, and the largest absolute difference among them.

    ``largest`` is exact for integers and in float64 for floats; None if no differing element has a finite one.
    ``infinite`` counts infinities against anything else (and differences beyond float64), ``nan_on_one_side`` NaN
    against a number, ``nan_of_other_bits`` NaN against NaN: all part of ``elements``. ``unread_bytes`` counts bytes
    that differ in formats without values (F4, F6), whose elements are not counted.
    """

    elements: int = 0
    largest: int | float | None = None
    infinite: int = 0
    nan_on_one_side: int = 0
    nan_of_other_bits: int = 0
    unread_bytes: int = 0

    def __add__(self, other: "Distance") -> "Distance":
        """Of both parts together."""
        largest = [part.largest for part in (self, other) if part.largest is not None]
        return Distance(
            self.elements + other.elements,
            max(largest, default=None),
            self.infinite + other.infinite,
            self.nan_on_one_side + other.nan_on_one_side,
            self.nan_of_other_bits + other.nan_of_other_bits,
            self.unread_bytes + other.unread_bytes,
        )


NONE = Distance()
"""Nothing differs; the start of a sum."""


def distance(dtype: str, a: bytes | memoryview, b: bytes | memoryview) -> Distance:
    """Between two stretches of equal length, whole elements of one ``dtype`` each."""
    if not has_values(dtype):
        return Distance(unread_bytes=int((np.frombuffer(a, np.uint8) != np.frombuffer(b, np.uint8)).sum()))
    bits_a, bits_b = patterns(dtype, a), patterns(dtype, b)
    differ = bits_a != bits_b
    x, y = values(dtype, bits_a[differ]), values(dtype, bits_b[differ])
    if x.dtype.kind in "iu":
        return Distance(x.size, _largest_of_integers(x, y) if x.size else None)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(x - y)
    largest = float(apart.max(initial=0.0))
    if np.isfinite(largest):
        return Distance(x.size, largest if x.size else None)
    return _beyond_numbers(x, y, apart)


def _beyond_numbers(x: np.ndarray, y: np.ndarray, apart: np.ndarray) -> Distance:
    """With NaN or infinity somewhere. ``apart`` is |x - y|, finite where both are, if float64 holds it."""
    nan_x, nan_y = np.isnan(x), np.isnan(y)
    finite = apart[np.isfinite(apart)]
    one, both = int((nan_x ^ nan_y).sum()), int((nan_x & nan_y).sum())
    largest = float(finite.max()) if finite.size else None
    return Distance(x.size, largest, x.size - finite.size - one - both, one, both)


def _largest_of_integers(x: np.ndarray, y: np.ndarray) -> int:
    """The difference of two 64-bit integers may need all 64 bits, so it is taken unsigned."""
    return int((np.maximum(x, y).view(np.uint64) - np.minimum(x, y).view(np.uint64)).max())
