"""Qwen-Image: diffusers' QwenImageTransformer2DModel.

Timestep: sigma itself (the model multiplies by 1000). Output: noise - x0, our sign, packed as Flux's tokens are.
Rows and columns are counted from the middle of the picture; text stands on the diagonal after the last row.
Text is best kept without padding: then there is no mask.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families import packing
from train.families.family import channels_of, with_positions
from train.families.float32_time import embed_in_float32
from train.objective import StepInput
from train.rope import Rope, band_factors

MASK = "encoder_hidden_states_mask"


class QwenImage:
    """Packing, arguments and block order of one Qwen-Image model. Conditions may add the mask [tokens], 1 for text."""

    name: ClassVar[str] = "qwenimage"
    transformer_class: ClassVar[str] = "QwenImageTransformer2DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    lora_targets: ClassVar[str] = r"transformer_blocks\.\d+\.(attn\.(to_[qkv]|to_out\.0)|img_mlp\.net\.(0\.proj|2))"
    clips: ClassVar[bool] = False
    loop_only: ClassVar[str] = ""
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        for variant in ("zero_cond_t", "use_layer3d_rope", "use_additional_t_cond"):
            if config.get(variant):
                raise UsageError(
                    f"qwenimage with {variant}: edited and layered pictures are not fed here; take another"
                )
        self.patch: int = config["patch_size"]
        self.channels = channels_of(self.name, config["in_channels"] // self.patch**2, channels)
        self.longest = 4096  # of the model's table, rows below zero and above it alike
        self.condition_shapes = {"encoder_hidden_states": (None, config["joint_attention_dim"])}

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        batch, _, height, width = step.x_sigma.shape
        return {
            "hidden_states": packing.pack(step.x_sigma, self.patch),
            "timestep": step.sigma.float(),
            "img_shapes": [[(1, height // self.patch, width // self.patch)]] * batch,
            "encoder_hidden_states": step.condition["encoder_hidden_states"],
            MASK: step.condition.get(MASK),
            "return_dict": False,
        }

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer as a velocity [B, C, H, W] in the sign of Eq. 2."""
        return packing.unpack(output[0], self.patch, self.channels, *shape[-2:])

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model rounds sigma to the dtype of its activations."""
        embed_in_float32(transformer, "time_text_embed", 1)

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """Within it image tokens are turned by ``rope``, from the middle outwards; text tokens as ever."""
        return with_positions(transformer, "pos_embed", rope, StretchedPositions)


class StretchedPositions(torch.nn.Module):
    """Qwen-Image's position embedding with a factor for every frequency of the row and column axes."""

    def __init__(self, native: Any, rope: Rope) -> None:
        super().__init__()
        self.native = native
        self.frequencies = []
        for axis, dim in enumerate(native.axes_dim):
            # In float32, as the model has them.
            frequency = 1.0 / torch.pow(native.theta, torch.arange(0, dim, 2).to(torch.float32).div(dim))
            if axis:
                frequency = (frequency.double() * band_factors(rope, axis - 1, frequency.double())).float()
            self.frequencies.append(frequency)

    def forward(self, video_fhw: Any, device: Any = None, max_txt_seq_len: Any = None) -> tuple[Tensor, Tensor]:
        """[[(frames, rows, columns)]] -> complex factors of image tokens and of text tokens, [tokens, head dim / 2]."""
        _, text = self.native(video_fhw, device=device, max_txt_seq_len=max_txt_seq_len)
        frames, rows, columns = video_fhw[0][0]
        places = (
            torch.arange(frames),
            torch.arange(rows) - (rows - rows // 2),
            torch.arange(columns) - (columns - columns // 2),
        )
        turns = []
        for axis, (place, frequency) in enumerate(zip(places, self.frequencies, strict=True)):
            angle = torch.outer(place, frequency)
            along = [1, 1, 1, -1]
            along[axis] = len(place)
            turn = torch.polar(torch.ones_like(angle), angle).view(along)
            turns.append(turn.expand(frames, rows, columns, -1))
        return torch.cat(turns, dim=-1).flatten(0, 2).to(device), text
