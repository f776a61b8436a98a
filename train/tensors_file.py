"""Tensors in a safetensors file, written so that equal tensors give equal bytes.

The safetensors package writes metadata in an order that differs from call to call, and for its owner alone.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from analysis.atomic import replacing
from analysis.bytewise import compare
from analysis.errors import UsageError
from analysis.safetensors_file import opened
from train.raw_tensors import raw


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool:
    """Write ``tensors`` to ``path``, atomically, from whatever device they are on.

    A file that holds just them already is left alone, and the answer is False.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    if holds(path, on_cpu, metadata):
        return False
    with replacing(path) as partial:
        try:
            save_file(on_cpu, partial, dict(metadata))
        except SafetensorError as error:  # it tells what the system said in its text alone
            if said := re.search(r"os error (\d+)", str(error)):
                raise OSError(int(said[1]), os.strerror(int(said[1]))) from error
            raise
        sort_metadata(partial)
        partial.chmod(0o666 & ~umask())
    return True


def holds(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bool:
    """Whether ``path`` is a whole file of just these tensors, to the byte, and these metadata."""
    try:
        with opened(path) as file:
            return file.metadata == dict(metadata) and compare(raw(tensors), file.tensors).identical
    except UsageError:  # it is missing or damaged
        return False


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
