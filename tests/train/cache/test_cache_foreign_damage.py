"""Caches of other tools whose files are damaged, hold no usable numbers, or would be taken for what they are not."""

import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from analysis.errors import UsageError
from train.cache import opening
from train.cache.model import described

LATENT, TEXT = "a_0064x0064_flux.npz", "a_flux_te.npz"


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def write(folder, latents=None, text=None):
    """One image of Flux as sd-scripts keeps it, with other arrays where they are given."""
    np.savez_compressed(folder / LATENT, **{"latents_32x32": numbers(4, 32, 32), **(latents or {})})
    np.savez_compressed(folder / TEXT, **{"t5_out": numbers(9, 32), "l_pooled": numbers(32), **(text or {})})


def opened(family, model_folder, folder):
    model = described(str(model_folder(family)))
    return opening.opened(folder, model.family, model.folder)


def read(found):
    for name in found.names:
        found.latent(name, found.tier), found.condition(name)


@pytest.mark.parametrize(
    ("grids", "says"),
    [
        (["demoted_28x28"], "no array latents_HxW among demoted_28x28"),
        (["latents_28x28", "demoted_32x32"], "demoted_32x32 is no smaller than latents_28x28, the native grid"),
        (["latents_32x32", "demoted_32x32"], "demoted_32x32 is no smaller than latents_32x32"),
        (["latents_32x32", "demoted_14x56"], "demoted_14x56 is of another aspect than latents_32x32"),
        (["latents_32x32", "demoted_22x28"], "demoted_22x28 is of another aspect than latents_32x32"),
        (["latents_32x32", "latents_0x0"], r"latents_0x0 has shape \[4, 0, 0\], which holds nothing"),
    ],
)
def test_the_native_grid_is_named_latents_and_others_are_smaller_ones_of_its_aspect(
    grids, says, tmp_path, model_folder
):
    write(tmp_path)
    np.savez(tmp_path / LATENT, **{name: numbers(4, *map(int, name.split("_")[1].split("x"))) for name in grids})
    with pytest.raises(UsageError, match=says):
        opened("flux", model_folder, tmp_path)


def with_one(array, value):
    array.flat[5] = value
    return array


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_when_it_is_read(value, tmp_path, model_folder):
    write(tmp_path, {"latents_32x32": with_one(numbers(4, 32, 32), value)}, {"t5_out": with_one(numbers(9, 32), value)})
    found = opened("flux", model_folder, tmp_path)
    with pytest.raises(UsageError, match=f"{LATENT}: latents_32x32 has values that are not finite"):
        found.latent("a", 64)
    with pytest.raises(UsageError, match=f"{TEXT}: t5_out has values that are not finite"):
        found.condition("a")


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool, np.complex64, ">f4", "V2"])
def test_what_is_no_float_is_refused_at_opening(dtype, tmp_path, model_folder):
    write(tmp_path, {"latents_32x32": np.zeros((4, 32, 32), dtype)})
    with pytest.raises(UsageError, match=r"latents_32x32 is of .*, taken are floats of 16 to 64 bits"):
        opened("flux", model_folder, tmp_path)
    write(tmp_path, text={"l_pooled": np.zeros(32, dtype)})
    with pytest.raises(UsageError, match="l_pooled is of"):
        opened("flux", model_folder, tmp_path)


def write_musubi(folder, stem, latent, text_stem=None, text=None):
    """One image or clip of Wan."""
    sides = "x".join(map(str, latent.shape[1:]))
    save_file({f"latents_{sides}_float32": latent}, folder / f"{stem}_0064x0064_wan.safetensors")
    text = torch.ones(5, 32) if text is None else text
    save_file({"varlen_t5_float32": text}, folder / f"{text_stem or stem}_wan_te.safetensors")


def test_musubis_numbers_are_finite_floats_too(tmp_path, model_folder):
    bad = torch.full((4, 1, 16, 16), torch.nan)
    write_musubi(tmp_path, "a", bad, text=bad[0, 0, :5].repeat(1, 2).bfloat16())
    found = opened("wan", model_folder, tmp_path)
    with pytest.raises(UsageError, match=r"wan\.safetensors: latents_1x16x16_float32 has values that are not finite"):
        found.latent("a", 64)
    with pytest.raises(UsageError, match=r"a_wan_te\.safetensors: varlen_t5_float32 has values that are not finite"):
        found.condition("a")
    write_musubi(tmp_path, "a", bad, text=torch.ones(5, 32, dtype=torch.int64))
    with pytest.raises(UsageError, match="varlen_t5_float32 is of I64"):
        opened("wan", model_folder, tmp_path)
    write_musubi(tmp_path, "a", torch.ones(4, 1, 16, 16, dtype=torch.uint8))
    with pytest.raises(UsageError, match="latents_1x16x16_float32 is of U8"):
        opened("wan", model_folder, tmp_path)


@pytest.mark.parametrize(
    ("stem", "frames"), [("photo_2023-05", 1), ("photo_00000-009", 1), ("clip_2023-05", 3), ("clip_00000-9", 3)]
)
def test_only_a_clips_own_suffix_leads_to_its_videos_text(stem, frames, tmp_path, model_folder):
    write_musubi(tmp_path, stem, torch.ones(4, frames, 16, 16), text_stem=stem.split("_")[0])
    with pytest.raises(UsageError, match=f"no {stem}_wan_te.safetensors for the latents of {stem}"):
        opened("wan", model_folder, tmp_path)


def test_a_bit_flipped_anywhere_in_a_compressed_file_is_one_line(tmp_path, model_folder):
    """Or changes nothing that is read, such as a date."""
    write(tmp_path)
    whole = {name: (tmp_path / name).read_bytes() for name in (LATENT, TEXT)}
    read(opened("flux", model_folder, tmp_path))
    chance, refused = np.random.default_rng(0), []
    for name, data in whole.items():
        ends = [*range(200), *range(len(data) - 200, len(data))]  # headers and the directory, where every byte tells
        for place in [*chance.choice(ends, 100, replace=False), *chance.integers(0, len(data), 20)]:
            flipped = bytearray(data)
            flipped[place] ^= 1 << int(chance.integers(8))
            (tmp_path / name).write_bytes(flipped)
            try:
                read(opened("flux", model_folder, tmp_path))
            except UsageError as error:
                refused.append(str(error))
        (tmp_path / name).write_bytes(data)
    assert len(refused) > 100
    assert [text for text in refused if "\n" in text] == []


def test_headers_and_methods_that_are_not_numpys_are_one_line(tmp_path, model_folder):
    for header in (b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 32, 32), ", b"{'descr': '''", b"(" * 200):
        write(tmp_path)
        with zipfile.ZipFile(tmp_path / LATENT, "w") as archive:
            size = len(header).to_bytes(2, "little")
            archive.writestr("latents_32x32.npy", b"\x93NUMPY\x01\x00" + size + header)
        with pytest.raises(UsageError, match="is no whole npz file"):
            opened("flux", model_folder, tmp_path)
    for flag, place in ((1, 6), (99, 8)):  # encrypted; compressed by an unknown method
        write(tmp_path)
        data = bytearray((tmp_path / TEXT).read_bytes())
        for start in (0, data.index(b"PK\x01\x02") + 2):
            data[start + place] = flag
        (tmp_path / TEXT).write_bytes(data)
        with pytest.raises(UsageError, match=f"{TEXT} is no whole npz file"):
            opened("flux", model_folder, tmp_path)
