"""Tensors as their bytes, for the one comparison that files and steps share (``analysis.bytewise``)."""

from collections.abc import Mapping

import torch
from torch import Tensor

from analysis.bytewise import RawTensor, held

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Names of safetensors files."""


def raw(tensors: Mapping[str, Tensor]) -> dict[str, RawTensor]:
    """Tensors as their bytes, from whatever device."""
    return {
        name: held(
            DTYPES[tensor.dtype],
            tuple(tensor.shape),
            tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(),
        )
        for name, tensor in tensors.items()
    }
