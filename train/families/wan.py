"""Wan: diffusers' WanTransformer3DModel, text to picture and text to clip.

Timestep: 1000 sigma. Output: noise - x0, our sign, in the layout of the latent. A latent is [C, F, H, W], or
[C, H, W] for a single frame. Text is padded with zeros to the length the pipeline takes (512), without a mask.
Wan 2.2 has two transformers for two ranges of sigma: give the folder of the one that is trained; its 5B model takes
a timestep for each token, which without a first frame is one for all. A latent that the patch does not divide would
come back cropped.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families.family import channels_of, with_positions
from train.objective import StepInput
from train.rope import Rope, band_factors

THETA = 10000.0  # the model's, which its configuration does not name


class Wan:
    """Arguments and block order of one Wan model."""

    name: ClassVar[str] = "wan"
    transformer_class: ClassVar[str] = "WanTransformer3DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("blocks",)
    lora_targets: ClassVar[str] = r"blocks\.\d+\.(attn[12]\.(to_[qkv]|to_out\.0)|ffn\.net\.(0\.proj|2))"
    clips: ClassVar[bool] = True
    loop_only: ClassVar[str] = ""
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        frames, self.patch, across = config["patch_size"]
        if frames != 1 or across != self.patch:
            raise UsageError(f"wan with patch_size {list(config['patch_size'])}: takes one frame and square patches")
        if config["image_dim"] is not None or config["in_channels"] != config["out_channels"]:
            raise UsageError("wan from image to video: the image is not fed here; take a text-to-video model")
        self.channels = channels_of(self.name, config["in_channels"], channels)
        self.longest: int = config["rope_max_seq_len"]
        self.condition_shapes = {"encoder_hidden_states": (None, config["text_dim"])}

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, F, H, W] or [B, C, H, W]."""
        x = step.x_sigma
        return {
            "hidden_states": x if x.ndim == 5 else x.unsqueeze(2),
            "timestep": 1000 * step.sigma.float(),
            "encoder_hidden_states": step.condition["encoder_hidden_states"],
            "return_dict": False,
        }

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer, a velocity of ``shape`` in the sign of Eq. 2."""
        return output[0] if len(shape) == 5 else output[0].squeeze(2)

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model embeds time in the dtype it is given in."""

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """Within it ``transformer`` turns its queries and keys by ``rope``; frames keep their places."""
        return with_positions(transformer, "rope", rope, stretched_positions)


def stretched_positions(native: Any, rope: Rope) -> torch.nn.Module:
    """The model's position embedding with other tables: a factor for every frequency of rows and columns."""
    positions = type(native)(native.attention_head_dim, native.patch_size, native.max_seq_len, THETA)
    cosines, sines = [], []
    for axis, dim in enumerate((native.t_dim, native.h_dim, native.w_dim)):
        frequency = 1.0 / (THETA ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
        if axis:
            frequency = frequency * band_factors(rope, axis - 1, frequency)
        angle = torch.outer(torch.arange(native.max_seq_len), frequency)
        cosines.append(angle.cos().repeat_interleave(2, dim=1).float())
        sines.append(angle.sin().repeat_interleave(2, dim=1).float())
    positions.freqs_cos, positions.freqs_sin = torch.cat(cosines, dim=1), torch.cat(sines, dim=1)
    return positions.to(native.freqs_cos.device)
