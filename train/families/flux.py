"""Flux: diffusers' FluxTransformer2DModel, with and without guidance embedding.

Timestep: sigma itself (the model multiplies by 1000). Output: noise - x0, our sign. Tokens are
patches of patch x patch latent pixels, channels first inside a token, in row order.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from train.objective import StepInput
from train.rope import Rope


class Flux:
    """Packing, arguments and block order of one Flux model.

    config: the transformer's configuration; channels: those of a latent (16 for Flux, 3 for pixels).
    """

    name = "flux"
    transformer_class = "FluxTransformer2DModel"
    block_lists = ("transformer_blocks", "single_transformer_blocks")

    def __init__(self, config: Mapping[str, Any], channels: int) -> None:
        area, rest = divmod(config["in_channels"], channels)
        self.patch = isqrt(area)
        if rest or self.patch**2 != area:
            raise ValueError(
                f"latent with {channels} channels: the transformer takes {config['in_channels']} a token, "
                "which is not channels x patch x patch; give latents of this model's own autoencoder"
            )
        self.channels = channels
        self.text_dim: int = config["joint_attention_dim"]
        self.pooled_dim: int = config["pooled_projection_dim"]
        self.guidance: bool = bool(config["guidance_embeds"])

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        batch, _, height, width = step.x_sigma.shape
        text = step.condition["encoder_hidden_states"]
        arguments: dict[str, Any] = {
            "hidden_states": self.pack(step.x_sigma),
            "timestep": step.sigma.float(),
            "encoder_hidden_states": text,
            "pooled_projections": step.condition["pooled_projections"],
            "img_ids": self.positions(height, width, step.rope).to(step.x_sigma.device),
            "txt_ids": torch.zeros(text.shape[1], 3, device=step.x_sigma.device),
            "return_dict": False,
        }
        if self.guidance:
            arguments["guidance"] = torch.ones(batch, device=step.x_sigma.device)
        return arguments

    def velocity(self, output: Any, height: int, width: int) -> Tensor:
        """The transformer's answer as a velocity [B, C, H, W] in the sign of Eq. 2."""
        return self.unpack(output[0], height, width)

    def pack(self, latent: Tensor) -> Tensor:
        """[B, C, H, W] -> tokens [B, (H/p)(W/p), C p p]."""
        batch, channels, height, width = latent.shape
        p = self.patch
        tokens = latent.reshape(batch, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        return tokens.reshape(batch, (height // p) * (width // p), channels * p * p)

    def unpack(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens [B, (H/p)(W/p), C p p] -> [B, C, H, W]."""
        p = self.patch
        latent = tokens.reshape(tokens.shape[0], height // p, width // p, self.channels, p, p)
        return latent.permute(0, 3, 1, 4, 2, 5).reshape(tokens.shape[0], self.channels, height, width)

    def positions(self, height: int, width: int, rope: Rope) -> Tensor:
        """Token positions [(H/p)(W/p), 3]: (0, row, column), float32, times the stretch of ``rope``."""
        rows, columns = (torch.arange(side // self.patch, dtype=torch.float32) * rope.scale for side in (height, width))
        return torch.stack([t.flatten() for t in (torch.zeros(len(rows), len(columns)), *torch.meshgrid(rows, columns, indexing="ij"))], 1)

    def unconditional(self, batch: int) -> dict[str, Tensor]:
        """The condition of a model without text: one zero token."""
        return {
            "encoder_hidden_states": torch.zeros(batch, 1, self.text_dim),
            "pooled_projections": torch.zeros(batch, self.pooled_dim),
        }
