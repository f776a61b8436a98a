"""Arrays in files that other tools wrote, npz or safetensors: their headers, and their numbers once they are asked for.

found = arrays(Path("a_0064x0064_flux.npz"))
found["latents_32x32"].floating().read()        # a tensor of finite numbers, or a UsageError that says which is not
"""

import lzma
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from analysis.errors import UsageError
from analysis.safetensors_file import opened as opened_safetensors
from train.model_files import one_line

FLOATS = ("float16", "float32", "float64", "F16", "BF16", "F32", "F64")  # as numpy and safetensors call them
#: What zipfile, its decompressors and numpy raise for damage: RuntimeError, say, where a bit says encrypted.
DAMAGE = (
    OSError, ValueError, LookupError, TypeError, EOFError, SyntaxError, RuntimeError, MemoryError, OverflowError,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError, SafetensorError,
)  # fmt: skip


@dataclass(frozen=True)
class Array:
    """One array of a file, unread. dtype: as numpy or safetensors call it."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def floating(self) -> "Array":
        """Itself. UsageError unless its numbers are floating-point ones."""
        if self.dtype not in FLOATS:
            raise UsageError(f"{self.path}: {self.name} is of {self.dtype:.40}, taken are floats of 16 to 64 bits")
        return self

    def read(self) -> Tensor:
        """Its numbers. UsageError where they cannot be read, or are not finite."""
        try:
            found = _from_npz(self) if self.path.suffix == ".npz" else _from_safetensors(self)
        except DAMAGE as error:
            raise UsageError(
                f"{self.path}: {self.name} cannot be read ({one_line(error)}); remove it and make it again"
            ) from None
        if self.dtype in FLOATS and not found.float().isfinite().all():
            raise UsageError(f"{self.path}: {self.name} has values that are not finite; remove it and make it again")
        return found


def arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file by name, from their headers."""
    if path.suffix == ".npz":
        return _headers(path)
    with opened_safetensors(path) as file:
        layouts = {name: tensor.layout for name, tensor in file.tensors.items()}
    return {name: Array(path, name, layout.shape, layout.dtype) for name, layout in layouts.items()}


def _headers(path: Path) -> dict[str, Array]:
    """Those of an npz file."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    first = np.lib.format.read_magic(file) == (1, 0)
                    header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
                    shape, _, dtype = header(file)
                    name = member.removesuffix(".npy")
                    found[name] = Array(path, name, shape, str(dtype))
    except DAMAGE as error:
        raise UsageError(f"{path} is no whole npz file ({one_line(error)}); remove it and make it again") from None
    return found


def _from_npz(array: Array) -> Tensor:
    with np.load(array.path, allow_pickle=False) as file:
        return torch.from_numpy(file[array.name])


def _from_safetensors(array: Array) -> Tensor:
    with safe_open(array.path, framework="pt") as file:
        return file.get_tensor(array.name)
