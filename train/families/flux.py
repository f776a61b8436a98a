"""Flux: diffusers' FluxTransformer2DModel, with and without guidance embedding.

Timestep: sigma itself (the model multiplies by 1000). Output: noise - x0, our sign. Tokens are
patches of patch x patch latent pixels, channels first inside a token, in row order.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from math import isqrt
from typing import Any, ClassVar

import torch
from torch import Tensor

from analysis.errors import UsageError
from analysis.lora import original_names
from train.families import packing
from train.families.family import with_positions
from train.families.float32_time import embed_in_float32
from train.objective import StepInput
from train.rope import Rope, band_factors


class Flux:
    """Packing, arguments and block order of one Flux model.

    config: the transformer's configuration; channels: those of a latent (3 for pixels), by default what Flux's
    pipeline has: a quarter of the numbers in a token.
    """

    name: ClassVar[str] = "flux"
    transformer_class: ClassVar[str] = "FluxTransformer2DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks", "single_transformer_blocks")
    lora_targets: ClassVar[str] = (
        r"(single_)?transformer_blocks\.\d+\."
        r"(attn\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2)|proj_mlp|proj_out)"
    )
    clips: ClassVar[bool] = False
    loop_only: ClassVar[str] = ""
    kohya_modules: ClassVar[original_names.Rows] = original_names.FLUX
    longest: int | None = None

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        self.channels: int = config["in_channels"] // 4 if channels is None else channels
        area, rest = divmod(config["in_channels"], self.channels)
        self.patch = isqrt(area)
        if rest or area == 0 or self.patch**2 != area:
            raise UsageError(
                f"latents with {self.channels} channels: this Flux takes {config['in_channels']} numbers a token, "
                "which is not channels x patch x patch; give latents of the model's own autoencoder"
            )
        self.condition_shapes = {
            "encoder_hidden_states": (None, config["joint_attention_dim"]),
            "pooled_projections": (config["pooled_projection_dim"],),
        }
        self.guidance: bool = bool(config["guidance_embeds"])

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        batch, _, height, width = step.x_sigma.shape
        text, device = step.condition["encoder_hidden_states"], step.x_sigma.device
        arguments: dict[str, Any] = {
            "hidden_states": self.pack(step.x_sigma),
            "timestep": step.sigma.float(),  # bf16 would leave half of the levels indistinct
            "encoder_hidden_states": text,
            "pooled_projections": step.condition["pooled_projections"],
            "img_ids": self.positions(height, width).to(device),
            "txt_ids": torch.zeros(text.shape[1], 3, device=device),
            "return_dict": False,
        }
        if self.guidance:
            arguments["guidance"] = torch.ones(batch, device=device)
        return arguments

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer as a velocity [B, C, H, W] in the sign of Eq. 2."""
        return self.unpack(output[0], *shape[-2:])

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model multiplies by 1000 after it has rounded."""
        embed_in_float32(transformer, "time_text_embed", 1000)

    def pack(self, latent: Tensor) -> Tensor:
        """[B, C, H, W] -> tokens [B, (H/p)(W/p), C p p]."""
        return packing.pack(latent, self.patch)

    def unpack(self, packed: Tensor, height: int, width: int) -> Tensor:
        """Tokens [B, (H/p)(W/p), C p p] -> [B, C, H, W]."""
        return packing.unpack(packed, self.patch, self.channels, height, width)

    def positions(self, height: int, width: int) -> Tensor:
        """Token positions [(H/p)(W/p), 3]: (0, row, column), float32."""
        rows, columns = (torch.arange(side // self.patch, dtype=torch.float32) for side in (height, width))
        row, column = torch.meshgrid(rows, columns, indexing="ij")
        return torch.stack([torch.zeros(row.numel()), row.flatten(), column.flatten()], 1)

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """Within it ``transformer`` turns its queries and keys by ``rope``; native changes nothing at all."""
        return with_positions(transformer, "pos_embed", rope, stretched_positions)


def stretched_positions(native: Any, rope: Rope) -> torch.nn.Module:
    """The model's position embedding, ``native``, stretched by ``rope``."""
    return StretchedPositions(native.theta, tuple(native.axes_dim), rope)


class StretchedPositions(torch.nn.Module):
    """Flux's position embedding with a factor for every frequency of the row and column axes."""

    def __init__(self, theta: float, axes_dim: tuple[int, ...], rope: Rope) -> None:
        super().__init__()
        self.frequencies = []
        for axis, dim in enumerate(axes_dim):
            frequency = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
            self.frequencies.append(frequency * band_factors(rope, axis - 1, frequency) if axis else frequency)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Token positions [S, 3] -> cosines and sines [S, head dim], each frequency twice in a row."""
        angles = [
            torch.outer(ids[:, axis].double(), frequency.to(ids.device)).repeat_interleave(2, dim=1)
            for axis, frequency in enumerate(self.frequencies)
        ]
        angle = torch.cat(angles, dim=1)
        return angle.cos().float(), angle.sin().float()
