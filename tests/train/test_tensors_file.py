"""Tensors written twice are the same bytes, and read back by the format's own package."""

import os
import stat

import torch
from safetensors import safe_open

from train import tensors_file

TENSORS = {"b.ü": torch.arange(6.0).reshape(2, 3).T, "a": torch.tensor([-0.0, torch.nan], dtype=torch.bfloat16)}
METADATA = {name: f'{{"{name}": "é\\n"}}' for name in "zmabkq"}


def test_equal_tensors_give_equal_bytes(tmp_path):
    """With six entries of metadata, a random order is the same one twice with probability 1/720."""
    written = []
    for i in range(5):
        tensors_file.write(tmp_path / f"{i}.safetensors", TENSORS, METADATA)
        written.append((tmp_path / f"{i}.safetensors").read_bytes())
    assert len(set(written)) == 1


def test_what_is_written_reads_back(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors_file.write(path, TENSORS, METADATA)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == METADATA
        for name, tensor in TENSORS.items():
            found = file.get_tensor(name)
            assert found.dtype == tensor.dtype
            assert found.shape == tensor.shape
            assert found.contiguous().view(torch.uint8).equal(tensor.contiguous().view(torch.uint8))


def test_others_may_read_it_as_the_process_allows(tmp_path):
    before = os.umask(0o027)
    try:
        tensors_file.write(tmp_path / "x.safetensors", TENSORS, {})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.safetensors").stat().st_mode) == 0o640
