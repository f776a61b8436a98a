"""Distances between byte patterns, against a twin that reads one element at a time with Python's own numbers."""

import math
import struct
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.distance import NONE, Distance, distance
from analysis.dtypes import BITS, has_values, patterns, values


def eight_bits(mantissa_bits: int, bias: int, *, finite_only: bool) -> Callable[[bytes], float]:
    """An 8-bit float by its definition; ``finite_only``: the FNUZ variants."""

    def read(element: bytes) -> float:
        bits = element[0]
        sign = -1.0 if bits & 0x80 else 1.0
        exponent, mantissa = (bits & 0x7F) >> mantissa_bits, bits & (2**mantissa_bits - 1)
        if bits == 0x80 and finite_only:
            return math.nan
        if not finite_only and mantissa_bits == 3 and bits & 0x7F == 0x7F:
            return math.nan
        if not finite_only and mantissa_bits == 2 and exponent == 31:
            return math.nan if mantissa else sign * math.inf
        if exponent == 0:
            return sign * mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)
        return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)

    return read


def unpacked(form: str, pad: bytes = b"") -> Callable[[bytes], float]:
    return lambda element: struct.unpack("<" + form, pad + element)[0]


READ: dict[str, Callable[[bytes], float | complex]] = {
    "BOOL": unpacked("B"), "U8": unpacked("B"), "I8": unpacked("b"), "U16": unpacked("H"), "I16": unpacked("h"),
    "U32": unpacked("I"), "I32": unpacked("i"), "U64": unpacked("Q"), "I64": unpacked("q"),
    "F64": unpacked("d"), "F32": unpacked("f"), "F16": unpacked("e"), "BF16": unpacked("f", b"\0\0"),
    "C64": lambda element: complex(*struct.unpack("<ff", element)),
    "F8_E4M3": eight_bits(3, 7, finite_only=False), "F8_E5M2": eight_bits(2, 15, finite_only=False),
    "F8_E4M3FNUZ": eight_bits(3, 8, finite_only=True), "F8_E5M2FNUZ": eight_bits(2, 16, finite_only=True),
    "F8_E8M0": lambda element: math.nan if element[0] == 255 else 2.0 ** (element[0] - 127),
}  # fmt: skip


def is_nan(number: float | complex) -> bool:
    return number != number


def is_finite(number: float | complex) -> bool:
    return math.isfinite(number.real) and math.isfinite(number.imag)


def twin(dtype: str, a: bytes, b: bytes) -> Distance:
    """Element by element."""
    width = BITS[dtype] // 8
    found = NONE
    for at in range(0, len(a), width):
        left, right = a[at : at + width], b[at : at + width]
        if left == right:
            continue
        x, y = READ[dtype](left), READ[dtype](right)
        if is_nan(x) or is_nan(y):
            both = is_nan(x) and is_nan(y)
            found += Distance(1, nan_on_one_side=int(not both), nan_of_other_bits=int(both))
        elif is_finite(x) and is_finite(y) and math.isfinite(apart := abs(x - y)):
            found += Distance(1, apart)
        else:
            found += Distance(1, infinite=1)
    return found


def special(dtype: str) -> list[bytes]:
    """Bit patterns at the edges of a format: zeros of both signs, infinities, NaN, the largest and the smallest."""
    width = BITS[dtype] // 8
    tops = [0x00, 0x80, 0x7F, 0xFF, 0x7C, 0xFC, 0x7E, 0x78]
    return [bytes([low] * (width - 1) + [top]) for top in tops for low in (0x00, 0x80, 0xFF, 0xF0)]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, bytes, bytes]:
    """A dtype and two stretches of it, of edge cases and of anything, equal in places."""
    dtype = draw(st.sampled_from(sorted(READ)))
    width = BITS[dtype] // 8
    element = st.sampled_from(special(dtype)) | st.binary(min_size=width, max_size=width)
    left = draw(st.lists(element, max_size=12))
    right = [draw(st.just(each) | element) for each in left]
    return dtype, b"".join(left), b"".join(right)


@settings(max_examples=200)
@given(pairs())
def test_it_is_what_the_twin_finds(pair: tuple[str, bytes, bytes]) -> None:
    found, expected = distance(*pair), twin(*pair)
    if pair[0] == "C64" and found.largest and expected.largest:  # two hypotenuses, each rounded its own way
        assert found.largest == pytest.approx(expected.largest, rel=1e-15)
        found = replace(found, largest=expected.largest)
    assert found == expected


@pytest.mark.parametrize("dtype", [name for name in BITS if BITS[name] == 8])
def test_all_values_of_one_byte_are_right(dtype: str) -> None:
    every = bytes(range(256))
    expected = [READ[dtype](bytes([each])) for each in every]
    np.testing.assert_array_equal(values(dtype, patterns(dtype, every)).astype(float), np.array(expected, float))


def test_every_format_has_a_twin_or_no_values() -> None:
    assert {dtype for dtype in BITS if has_values(dtype)} == set(READ)
    assert set(BITS) - set(READ) == {"F4", "F6_E2M3", "F6_E3M2"}


def f32(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f32(1, 2, 3), f32(1, 2.5, 1), Distance(2, 2.0)),
        (f32(0.0), f32(-0.0), Distance(1, 0.0)),
        (f32(math.nan), f32(math.nan), NONE),
        (f32(math.nan, 1), f32(0, 2), Distance(2, 1.0, nan_on_one_side=1)),
        (b"\0\0\xc0\x7f", b"\1\0\xc0\x7f", Distance(1, None, nan_of_other_bits=1)),
        (f32(math.inf, 1), f32(-math.inf, 4), Distance(2, 3.0, infinite=1)),
        (f32(math.inf), f32(math.nan), Distance(1, None, nan_on_one_side=1)),
    ],
)
def test_what_a_number_cannot_say_is_counted(a: bytes, b: bytes, expected: Distance) -> None:
    assert distance("F32", a, b) == expected


def test_integers_are_exact_beyond_what_floats_hold() -> None:
    ends = struct.pack("<qq", -(2**63), 2**62 + 1), struct.pack("<qq", 2**63 - 1, 0)
    assert distance("I64", *ends).largest == 2**64 - 1
    assert distance("U64", struct.pack("<Q", 2**64 - 1), struct.pack("<Q", 2)).largest == 2**64 - 3


def test_formats_without_values_count_bytes() -> None:
    assert distance("F4", b"\x01\x02\x03", b"\x01\x12\x30") == Distance(unread_bytes=2)


def test_the_sum_is_that_of_the_whole() -> None:
    random = np.random.default_rng(0)
    a, b = random.bytes(4096), random.bytes(4096)
    parts = [distance("BF16", a[at : at + 512], b[at : at + 512]) for at in range(0, 4096, 512)]
    assert sum(parts, NONE) == distance("BF16", a, b)
    assert NONE + parts[0] == parts[0]
