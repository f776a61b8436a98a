"""Tensors in a safetensors file, written so that equal tensors give equal bytes.

The safetensors package writes metadata in an order that differs from call to call, and for its owner alone.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from analysis.atomic import replacing


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write ``tensors`` to ``path``, atomically, from whatever device they are on."""
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as partial:
        save_file(on_cpu, partial, dict(metadata))
        sort_metadata(partial)
        partial.chmod(0o666 & ~umask())


def sort_metadata(path: Path) -> None:
    """Put the header's metadata in the order of their names, in place; the header keeps its length."""
    with path.open("r+b") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        if "__metadata__" in header:
            header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
        if len(text) != length:
            raise RuntimeError(f"{path.name}: the header would take {len(text)} bytes in place of {length}")
        file.seek(8)
        file.write(text)


def umask() -> int:
    """The permissions that this process withholds from new files."""
    current = os.umask(0)
    os.umask(current)
    return current
