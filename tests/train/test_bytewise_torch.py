"""The byte comparison, which knows no torch, against torch: what bit patterns stand for, and dense comparison."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from analysis.bytewise import RawTensor, compare, held
from analysis.dtypes import patterns, values
from analysis.file_pairs import compared
from analysis.safetensors_file import opened

FLOATS = {
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "F8_E8M0": torch.float8_e8m0fnu, "BF16": torch.bfloat16,
    "F16": torch.float16,
}  # fmt: skip
OTHERS = {"F32": torch.float32, "F64": torch.float64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in (FLOATS | OTHERS).items()}


def raw(tensor: Tensor) -> RawTensor:
    return held(NAMES[tensor.dtype], tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_bit_pattern_of_a_small_float_is_what_torch_takes_it_for(dtype: str) -> None:
    width = FLOATS[dtype].itemsize
    every = np.arange(256**width, dtype=f"<u{width}").tobytes()
    theirs = torch.frombuffer(bytearray(every), dtype=FLOATS[dtype]).to(torch.float32).double().numpy()
    np.testing.assert_array_equal(values(dtype, patterns(dtype, every)), theirs)


def collection(seed: int) -> dict[str, Tensor]:
    """A tensor of every dtype in two blocks, with zeros of both signs and NaN; half of them depend on the seed."""
    made: dict[str, Tensor] = {}
    for index, (name, dtype) in enumerate((FLOATS | OTHERS).items()):
        for block in range(2):
            generator = torch.Generator().manual_seed(1000 * index + block + (seed if (index + block) % 2 else 0))
            numbers = torch.randn(5, 70, generator=generator) * (1 if dtype.is_floating_point else 100)
            numbers[0, :3] = torch.tensor([0.0, -0.0, float("nan") if dtype.is_floating_point else 7.0])
            if dtype in (torch.uint8, torch.float8_e8m0fnu):
                numbers = numbers.abs()
            made[f"blocks.{block}.{name}"] = numbers.to(dtype)
    return made


def test_files_of_every_dtype_agree_with_dense_comparison(tmp_path: Path) -> None:
    first, second = collection(1), collection(2)
    second["blocks.0.BF16"] = first["blocks.0.BF16"].clone()
    second["blocks.0.BF16"][0, 0] = -0.0
    for name, tensors in (("a", first), ("b", second)):
        save_file(tensors, tmp_path / f"{name}.safetensors", {"format": "pt"})
    (pair,) = compared(tmp_path / "a.safetensors", tmp_path / "b.safetensors").files
    found = {difference.name: difference for difference in pair.tensors.differences}
    assert pair.tensors.tensors == len(first)
    assert pair.metadata.identical
    for name in first:
        bytes_a, bytes_b = (tensors[name].reshape(-1).view(torch.uint8) for tensors in (first, second))
        assert (name in found) is not torch.equal(bytes_a, bytes_b), name
        if name not in found:
            continue
        distance = found[name].distance
        assert distance is not None
        assert found[name].block == name[: len("blocks.0")]
        x, y = (tensors[name].to(torch.float32).double() for tensors in (first, second))
        if first[name].dtype == torch.float64:
            x, y = first[name], second[name]
        differ = (bytes_a != bytes_b).reshape(x.numel(), -1).any(1)
        apart = (x - y).abs().reshape(-1)[differ]
        assert distance.elements == int(differ.sum())
        assert distance.largest == float(apart[~apart.isnan()].max())
        assert distance.nan_on_one_side == int((x.isnan() ^ y.isnan()).sum())
    assert found["blocks.0.BF16"].distance.largest == 0.0


def test_what_is_held_equals_what_was_saved(tmp_path: Path) -> None:
    tensors = collection(3) | {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3)}
    save_file(tensors, tmp_path / "x.safetensors")
    with opened(tmp_path / "x.safetensors") as file:
        found = compare({name: raw(tensor) for name, tensor in tensors.items()}, file.tensors)
        assert found.identical
        assert found.tensors == len(tensors)
        tensors["scalar"] = torch.tensor(2.5).nextafter(torch.tensor(3.0))
        (difference,) = compare(file.tensors, {name: raw(tensor) for name, tensor in tensors.items()}).differences
    assert difference.name == "scalar"
    assert difference.distance is not None
    assert difference.distance.largest == 2.0**-22
