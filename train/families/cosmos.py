"""Cosmos as the Anima pipeline uses it: diffusers' CosmosTransformer3DModel on pictures.

Timestep: sigma, not multiplied by anything. Output: noise - x0, our sign. A picture is a clip of one frame and has no
frames per second; its padding mask says that nothing is padding. (Cosmos' own video pipelines precondition otherwise.)
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from typing import Any, ClassVar

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families.family import channels_of, with_positions
from train.objective import StepInput
from train.rope import Rope, band_factors


class Cosmos:
    """Arguments and block order of one Cosmos model. Conditions: what Anima's text conditioner gives."""

    name: ClassVar[str] = "cosmos"
    transformer_class: ClassVar[str] = "CosmosTransformer3DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    lora_targets: ClassVar[str] = r"transformer_blocks\.\d+\.(attn[12]\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2))"
    clips: ClassVar[bool] = False
    loop_only: ClassVar[str] = ""
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        frames, self.patch, across = config["patch_size"]
        if frames != 1 or across != self.patch:
            raise UsageError(f"cosmos with patch_size {list(config['patch_size'])}: takes one frame and square patches")
        if config["img_context_dim_in"] or config["in_channels"] != config["out_channels"]:
            raise UsageError("cosmos with an image or a mask as condition: these are not fed here; take Anima's")
        self.channels = channels_of(self.name, config["in_channels"], channels)
        sizes = config["max_size"][1:] if config["extra_pos_embed_type"] else [max(config["max_size"])]
        self.longest: int = min(sizes) // self.patch
        self.padding_mask = bool(config["concat_padding_mask"])
        text = config["crossattn_proj_in_channels" if config["use_crossattn_projection"] else "text_embed_dim"]
        self.condition_shapes = {"encoder_hidden_states": (None, text)}

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        x = step.x_sigma
        arguments: dict[str, Any] = {
            "hidden_states": x.unsqueeze(2),
            "timestep": step.sigma.float(),
            "encoder_hidden_states": step.condition["encoder_hidden_states"],
            "return_dict": False,
        }
        if self.padding_mask:
            if find_spec("torchvision") is None:
                raise UsageError("cosmos with concat_padding_mask: diffusers needs torchvision for it; install that")
            # The pipeline's has the sides in pixels; the model resizes it to those of the latent.
            arguments["padding_mask"] = torch.zeros(1, 1, *x.shape[-2:], device=x.device, dtype=x.dtype)
        return arguments

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer, a velocity [B, C, H, W] in the sign of Eq. 2."""
        return output[0].squeeze(2)

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model embeds time in the dtype it is given in."""

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """Within it queries and keys are turned by ``rope``; learnt positions, if there are any, stay as they are."""
        return with_positions(transformer, "rope", rope, StretchedPositions)


class StretchedPositions(torch.nn.Module):
    """Cosmos' position embedding of pictures with a factor for every frequency of rows and columns."""

    def __init__(self, native: Any, rope: Rope) -> None:
        super().__init__()
        self.patch_size = native.patch_size
        self.frequencies = []
        axes = (
            (native.dim_t, native.t_ntk_factor),
            (native.dim_h, native.h_ntk_factor),
            (native.dim_w, native.w_ntk_factor),
        )
        for axis, (dim, ntk) in enumerate(axes):
            # In float32, as the model has them.
            frequency = 1.0 / ((10000.0 * ntk) ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
            if axis:
                frequency = (frequency.double() * band_factors(rope, axis - 1, frequency.double())).float()
            self.frequencies.append(frequency)

    def forward(self, hidden_states: Tensor, fps: int | None = None) -> tuple[Tensor, Tensor]:
        """Latent [B, C, F, H, W] -> cosines and sines [tokens, head dim], the frequencies twice in a row."""
        sides = [side // patch for side, patch in zip(hidden_states.shape[2:], self.patch_size, strict=True)]
        angles = []
        for axis, (side, frequency) in enumerate(zip(sides, self.frequencies, strict=True)):
            along = [1, 1, 1, -1]
            along[axis] = side
            angle = torch.outer(torch.arange(side, dtype=torch.float32), frequency).view(along)
            angles.append(angle.expand(*sides, -1))
        angle = torch.cat(angles * 2, dim=-1).flatten(0, 2).to(hidden_states.device)
        return angle.cos(), angle.sin()
