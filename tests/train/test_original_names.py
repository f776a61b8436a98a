"""The tables of original names against diffusers' own converters."""

import pytest
import torch
from diffusers.loaders import lora_conversion_utils as convert
from diffusers.loaders.single_file_utils import convert_sd3_transformer_checkpoint_to_diffusers

from analysis.lora.original_names import ANIMA, FLUX, FLUX2, FLUX_OUTSIDE, SD3, WAN, Z_IMAGE, Rows

WIDTH = 8
FLUX_WIDTH = 3072  # which diffusers' converter takes for granted


def adapter(rows: Rows, base: str, suffixes: tuple[str, str], width: int, height: int) -> dict[str, torch.Tensor]:
    """A LoRA of rank 1 of every module of block 0; row r of the i-th module's up is (i + 1) + r / 2^15."""
    found = {}
    for i, (original, parts) in enumerate(rows):
        name = original.format(0)
        name = f"{base}_{name.replace('.', '_')}" if base == "lora_unet" else f"{base}.{name}"
        high = {1: height, 3: 3 * height, 4: 7 * height}[len(parts)]
        found[f"{name}.{suffixes[0]}.weight"] = torch.full((1, width), float(i + 1))
        found[f"{name}.{suffixes[1]}.weight"] = i + 1 + torch.arange(high)[:, None] / 2**15
        if base == "lora_unet":
            found[f"{name}.alpha"] = torch.tensor(1.0)
    return found


LETTERS, WORDS, DOTS = ("lora_A", "lora_B"), ("lora_down", "lora_up"), ("lora.down", "lora.up")


@pytest.mark.parametrize(
    ("rows", "name", "base", "suffixes", "height"),
    [
        (FLUX + FLUX_OUTSIDE, "_convert_kohya_flux_lora_to_diffusers", "lora_unet", WORDS, FLUX_WIDTH),
        (FLUX2, "_convert_non_diffusers_flux2_lora_to_diffusers", "diffusion_model", LETTERS, WIDTH),
        (WAN, "_convert_non_diffusers_wan_lora_to_diffusers", "diffusion_model", LETTERS, WIDTH),
        (Z_IMAGE, "_convert_non_diffusers_z_image_lora_to_diffusers", "diffusion_model", DOTS, WIDTH),
        (ANIMA, "_convert_non_diffusers_anima_lora_to_diffusers", "diffusion_model", LETTERS, WIDTH),
    ],
)  # fmt: skip
def test_they_are_diffusers_own(rows: Rows, name: str, base: str, suffixes: tuple[str, str], height: int) -> None:
    """Each part has the rows of up that follow those of the part before it."""
    tensors = adapter(rows, base, suffixes, height, height)
    theirs = {
        key.removeprefix("transformer."): value
        for key, value in getattr(convert, name)(dict(tensors)).items()
        if key.endswith("lora_B.weight")
    }
    assert_parts_follow_each_other(rows, theirs, ".lora_B.weight", height)
    assert theirs == {}


def assert_parts_follow_each_other(rows: Rows, theirs: dict[str, torch.Tensor], suffix: str, height: int) -> None:
    for i, (_, parts) in enumerate(rows):
        start = 0
        for part in parts:
            up = theirs.pop(part.format(0) + suffix)
            expected = i + 1 + torch.arange(start, start + up.shape[0])[:, None] / 2**15
            assert torch.equal(up, expected), part
            start += up.shape[0]
        assert start == {1: height, 3: 3 * height, 4: 7 * height}[len(parts)]


class Checkpoint(dict[str, torch.Tensor]):
    """A model's weights, with zeros for all that the table leaves out."""

    def pop(self, key: str, *_: object) -> torch.Tensor:
        return super().pop(key, torch.zeros(2 * WIDTH, 1))


def test_sd3s_are_those_of_diffusers_reader_of_checkpoints() -> None:
    """There is no converter of LoRA files for it."""
    ups = {
        key.removeprefix("x.").replace(".lora_B.", "."): up
        for key, up in adapter(SD3, "x", LETTERS, WIDTH, WIDTH).items()
        if ".lora_B." in key
    }
    more = {"joint_blocks.1.x_block.attn.proj.weight": torch.zeros(2, 1), "context_embedder.weight": torch.zeros(2, 1)}
    theirs = convert_sd3_transformer_checkpoint_to_diffusers(Checkpoint(ups | more))
    assert_parts_follow_each_other(SD3, theirs, ".weight", WIDTH)
