"""A model's autoencoder: pixels to the latents that its transformer works on, and back.

A latent is the mode of the posterior, normalised as the model's pipeline does: (z - shift) * scale, or, where the
configuration has a mean and a spread for each channel (Qwen-Image, Wan), (z - mean) / std. Autoencoders of clips take
a picture as a clip of one frame.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from analysis.errors import UsageError
from train.model_files import configuration, one_line

FOLDER = "vae"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Autoencoder:
    """The ``vae`` of a diffusers folder, on ``device``. dtype: that it computes in; latents come in float32."""

    def __init__(self, vae: Any, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        self.vae, self.dtype, self.device = (
            vae.to(device=device, dtype=dtype).eval().requires_grad_(False),
            dtype,
            device,
        )
        self.factor = factor_of(vae.config)
        self.clips = hasattr(vae.config, "temperal_downsample")

    @torch.no_grad()
    def encode(self, pixels: np.ndarray) -> Tensor:
        """uint8 [H, W, 3] -> latent [C, H / factor, W / factor], float32 on the CPU."""
        x = torch.from_numpy(pixels.astype(np.float32)).movedim(-1, 0)[None] / 127.5 - 1
        x = (x.unsqueeze(2) if self.clips else x).to(self.device, self.dtype)
        z = self.vae.encode(x).latent_dist.mode().float().cpu()
        latent = normalised((z.squeeze(2) if self.clips else z)[0], self.vae.config)
        wanted = tuple(side // self.factor for side in pixels.shape[:2])
        if tuple(latent.shape[-2:]) != wanted:
            raise UsageError(
                f"the autoencoder makes a latent of {list(latent.shape[-2:])} of {pixels.shape[0]} x {pixels.shape[1]} "
                f"pixels, {list(wanted)} was expected; fetch the model again, with its own vae/config.json"
            )
        return latent

    @torch.no_grad()
    def decode(self, latent: Tensor) -> np.ndarray:
        """Latent [C, h, w] -> uint8 [h * factor, w * factor, 3], rounded."""
        z = raw(latent, self.vae.config)[None].to(self.device, self.dtype)
        x = self.vae.decode(z.unsqueeze(2) if self.clips else z, return_dict=False)[0].float().cpu()
        values = ((x.squeeze(2) if self.clips else x)[0].movedim(0, -1) + 1) * 127.5
        return values.clamp(0, 255).round().to(torch.uint8).numpy()


def load(model: Path, dtype: str, device: str) -> Autoencoder:
    """The autoencoder of the model folder ``model``."""
    import diffusers

    folder = model / FOLDER
    config = configuration(folder / "config.json")
    kind = getattr(diffusers, str(config.get("_class_name")), None)
    if kind is None or not str(config["_class_name"]).startswith("AutoencoderKL"):
        raise UsageError(
            f"model {model}: {folder} holds no autoencoder that diffusers {diffusers.__version__} knows; give the "
            "whole model's folder, with vae/config.json and its weights"
        )
    try:
        vae = kind.from_pretrained(folder, torch_dtype=DTYPES[dtype], use_safetensors=True)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"model {model}: {folder} does not load ({one_line(error)}); fetch the model again") from None
    return Autoencoder(vae, DTYPES[dtype], device)


def unit_of(model: Path) -> int:
    """Pixels along a side of one latent pixel, without loading anything."""
    file = model / FOLDER / "config.json"
    config = configuration(file)
    if not config:
        raise UsageError(f"model {model}: no {file}; give the whole model's folder, with its autoencoder")
    return factor_of(SimpleNamespace(**config))


def factor_of(config: Any) -> int:
    """Pixels along a side of one latent pixel."""
    if getattr(config, "scale_factor_spatial", None):
        return config.scale_factor_spatial
    if getattr(config, "temperal_downsample", None):
        return 2 ** len(config.temperal_downsample)
    return 2 ** (len(getattr(config, "block_out_channels", range(4))) - 1)


def normalised(z: Tensor, config: Any) -> Tensor:
    """What the autoencoder gives, [C, ...] -> what the transformer takes."""
    if spread := _by_channel(z, config):
        mean, std = spread
        return (z - mean) / std
    return (z - (getattr(config, "shift_factor", None) or 0.0)) * config.scaling_factor


def raw(latent: Tensor, config: Any) -> Tensor:
    """The inverse of ``normalised``."""
    if spread := _by_channel(latent, config):
        mean, std = spread
        return latent * std + mean
    return latent / config.scaling_factor + (getattr(config, "shift_factor", None) or 0.0)


def _by_channel(z: Tensor, config: Any) -> tuple[Tensor, Tensor] | None:
    """Mean and spread of each channel, where the configuration has them."""
    mean, std = getattr(config, "latents_mean", None), getattr(config, "latents_std", None)
    if mean is None or std is None:
        return None
    each = (-1, *[1] * (z.ndim - 1))
    return torch.tensor(mean).view(each), torch.tensor(std).view(each)
