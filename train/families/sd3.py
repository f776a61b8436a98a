"""SD3 and SD3.5: diffusers' SD3Transformer2DModel.

Timestep: 1000 sigma. Output: noise - x0, our sign, in the layout of the latent. Positions are learnt and added,
cut from the middle of one table, so nothing can be stretched. A latent that the patch does not divide would come
back cropped.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch
from torch import Tensor

from train.families.family import channels_of, without_rope
from train.objective import StepInput
from train.rope import Rope


class SD3:
    """Arguments and block order of one SD3 model."""

    name: ClassVar[str] = "sd3"
    transformer_class: ClassVar[str] = "SD3Transformer2DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("transformer_blocks",)
    lora_targets: ClassVar[str] = r"transformer_blocks\.\d+\.(attn2?\.(to_[qkv]|to_out\.0)|ff\.net\.(0\.proj|2))"
    clips: ClassVar[bool] = False
    loop_only: ClassVar[str] = ""
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        self.channels = channels_of(self.name, config["in_channels"], channels)
        self.patch: int = config["patch_size"]
        self.longest: int = config["pos_embed_max_size"]
        self.condition_shapes = {
            "encoder_hidden_states": (None, config["joint_attention_dim"]),
            "pooled_projections": (config["pooled_projection_dim"],),
        }

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        return {
            "hidden_states": step.x_sigma,
            "timestep": 1000 * step.sigma.float(),
            "encoder_hidden_states": step.condition["encoder_hidden_states"],
            "pooled_projections": step.condition["pooled_projections"],
            "return_dict": False,
        }

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer, a velocity [B, C, H, W] in the sign of Eq. 2."""
        return output[0]

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model embeds time in the dtype it is given in."""

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """UsageError unless ``rope`` is native."""
        return without_rope(self, rope)
