"""The number formats of safetensors files: how wide they are, and what number a bit pattern stands for.

Plain numpy: bfloat16 and the 8-bit floats, which numpy lacks, are widened by bit shifts and tables. F4, F6_E2M3 and
F6_E3M2 have a width but no values here: their elements are no whole bytes.
"""

from functools import cache

import numpy as np

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "BF16": 16, "F16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits of one element, by the name that safetensors files use."""

_INTEGERS = {"BOOL": "u1", **{name: f"{name[0].lower()}{BITS[name] // 8}" for name in BITS if name[0] in "UI"}}
_FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_E4M3 = {"F8_E4M3": 7, "F8_E4M3FNUZ": 8}
"""Exponent bias of the formats with 4 exponent and 3 mantissa bits."""


def has_values(dtype: str) -> bool:
    """Whether ``values`` can read this format; any other is compared as bytes alone."""
    return dtype in BITS and BITS[dtype] % 8 == 0


def patterns(dtype: str, data: bytes | memoryview) -> np.ndarray:
    """Each element's bits as one unsigned integer, [elements]."""
    return np.frombuffer(data, f"<u{BITS[dtype] // 8}")


def values(dtype: str, bits: np.ndarray) -> np.ndarray:
    """Numbers of bit patterns: floats as float64, C64 as complex128, integers and booleans as 64-bit integers."""
    if dtype in _INTEGERS:
        return bits.view(f"<{_INTEGERS[dtype]}").astype(np.uint64 if dtype[0] in "UB" else np.int64)
    if dtype in _FLOATS:
        return _quiet(bits.view(_FLOATS[dtype]), np.float64)
    if dtype == "C64":
        return _quiet(bits.view("<c8"), np.complex128)
    if dtype == "BF16":  # the upper half of a float32
        return _quiet((bits.astype(np.uint32) << 16).view(np.float32), np.float64)
    return _eight_bits(dtype).take(bits)


def _quiet(numbers: np.ndarray, dtype: type) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # a signalling NaN is a value like any other here
        return numbers.astype(dtype)


@cache
def _eight_bits(dtype: str) -> np.ndarray:
    """The 256 numbers of an 8-bit float, float64.

    E4M3 and E5M2 as in Micikevicius et al., "FP8 Formats for Deep Learning", 2022 (E4M3 without infinities); the FNUZ
    variants have one zero, one NaN (0x80) and a bias one higher; E8M0 is the scale 2^(bits - 127) of microscaling (MX)
    formats, 255 its NaN.
    """
    bits = np.arange(256)
    if dtype == "F8_E8M0":
        return np.where(bits == 255, np.nan, np.exp2(bits - 127.0))
    if dtype == "F8_E5M2":  # the upper half of a float16
        return _quiet((bits.astype(np.uint16) << 8).view(np.float16), np.float64)
    mantissa_bits, bias = (3, _E4M3[dtype]) if dtype in _E4M3 else (2, 16)
    scale = 2.0**-mantissa_bits
    exponent, mantissa = (bits & 127) >> mantissa_bits, (bits & (2**mantissa_bits - 1)) * scale
    size = np.where(exponent > 0, np.exp2(exponent - bias) * (1 + mantissa), np.exp2(1.0 - bias) * mantissa)
    nan = bits == 0x80 if dtype.endswith("FNUZ") else (bits & 127) == 127
    return np.where(nan, np.nan, np.where(bits < 128, size, -size))
