"""Latents against diffusers' own pipelines, which encode pictures for editing, and back to pixels."""

import numpy as np
import pytest
import torch

from analysis.errors import UsageError
from train.cache import autoencoder

FAMILIES = ["flux", "sd3", "qwenimage", "wan", "z_image", "cosmos"]


def picture(height=48, width=64):
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def signed(pixels):
    return torch.from_numpy(pixels).permute(2, 0, 1)[None].double() / 127.5 - 1


def by_diffusers(family, vae, pixels):
    """What each pipeline's decoding line undoes, written out."""
    with torch.no_grad():
        if family in ("flux", "sd3", "z_image"):
            z = vae.encode(signed(pixels).float()).latent_dist.mean
            return ((z - 0.12) * 0.36)[0]
        z = vae.encode(signed(pixels).float()[:, :, None]).latent_dist.mean[:, :, 0]
        mean = torch.tensor([-0.4, 0.1, 0.2, 0.0]).view(1, 4, 1, 1)
        return ((z - mean) / torch.tensor([2.8, 1.4, 2.3, 0.9]).view(1, 4, 1, 1))[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_latent_is_the_normalised_mode(family, model_folder):
    coder = autoencoder.load(model_folder(family), "fp32", "cpu")
    latent = coder.encode(picture())
    assert latent.dtype == torch.float32
    assert torch.allclose(latent, by_diffusers(family, coder.vae, picture()), atol=1e-6)
    assert torch.equal(coder.encode(picture()), latent)  # no sample
    assert autoencoder.unit_of(model_folder(family)) == coder.factor == 48 // latent.shape[-2]


@pytest.mark.parametrize("family", FAMILIES)
def test_normalising_is_undone_and_decoded(family, model_folder):
    coder = autoencoder.load(model_folder(family), "fp32", "cpu")
    z = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))
    back = autoencoder.raw(autoencoder.normalised(z, coder.vae.config), coder.vae.config)
    assert torch.allclose(back, z, atol=1e-6)
    latent = coder.encode(picture())
    pixels = coder.decode(latent)
    assert (pixels.dtype, pixels.shape) == (np.uint8, (48, 64, 3))
    with torch.no_grad():
        z = autoencoder.raw(latent, coder.vae.config)[None]
        x = coder.vae.decode(z[:, :, None] if coder.clips else z).sample
    expected = ((x[:, :, 0] if coder.clips else x)[0].permute(1, 2, 0) / 2 + 0.5).clamp(0, 1) * 255
    assert np.abs(pixels - expected.numpy()).max() <= 0.5 + 1e-3


def test_qwen_images_own_editing_pipeline_encodes_the_same(model_folder):
    from diffusers import QwenImageEditPipeline

    coder = autoencoder.load(model_folder("qwenimage"), "fp32", "cpu")
    pipeline = QwenImageEditPipeline(None, coder.vae, None, None, None, None)
    theirs = pipeline._encode_vae_image(signed(picture()).float()[:, :, None], torch.Generator())
    assert torch.allclose(coder.encode(picture()), theirs[0, :, 0], atol=1e-6)


def test_fluxs_own_picture_pipeline_encodes_the_same_but_for_the_sample(model_folder):
    from diffusers import FluxImg2ImgPipeline

    coder = autoencoder.load(model_folder("flux"), "fp32", "cpu")
    pipeline = FluxImg2ImgPipeline(None, coder.vae, None, None, None, None, None)
    draws = [
        pipeline._encode_vae_image(signed(picture()).float(), torch.Generator().manual_seed(i))[0] for i in range(64)
    ]
    spread = torch.stack(draws).std(0) / 8
    off = (torch.stack(draws).mean(0) - coder.encode(picture())).abs()
    assert (off < 5 * spread + 1e-6).all()
    assert spread.mean() > 0


def test_missing_parts_are_one_line(tmp_path, model_folder):
    with pytest.raises(UsageError, match=r"no .*vae/config\.json"):
        autoencoder.unit_of(tmp_path)
    with pytest.raises(UsageError, match="holds no autoencoder"):
        autoencoder.load(tmp_path, "fp32", "cpu")
    (tmp_path / "vae").mkdir()
    (tmp_path / "vae" / "config.json").write_text((model_folder("flux") / "vae" / "config.json").read_text())
    with pytest.raises(UsageError, match="does not load"):
        autoencoder.load(tmp_path, "fp32", "cpu")
