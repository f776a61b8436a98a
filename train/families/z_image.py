"""Z-Image: diffusers' ZImageTransformer2DModel.

Timestep: 1 - sigma, the share of the picture (the model multiplies by 1000). Output: x0 - noise, the other sign.
Latents [C, 1, H, W] and captions [T, D] come as lists, one entry a sample. Captions and pictures are padded inside the
model to multiples of 32 tokens.
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


class ZImage:
    """Lists, arguments and block order of one Z-Image model. ``noise_refiner`` and ``context_refiner`` are parallel."""

    name: ClassVar[str] = "z_image"
    transformer_class: ClassVar[str] = "ZImageTransformer2DModel"
    block_lists: ClassVar[tuple[str, ...]] = ("noise_refiner", "context_refiner", "layers")
    lora_targets: ClassVar[str] = (
        r"(noise_refiner|context_refiner|layers)\.\d+\.(attention\.(to_[qkv]|to_out\.0)|feed_forward\.w[123])"
    )
    clips: ClassVar[bool] = False
    loop_only: ClassVar[str] = "it takes lists of samples, which vmap cannot map over"
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        patches = list(zip(config["all_patch_size"], config["all_f_patch_size"], strict=True))
        if (2, 1) not in patches:
            raise UsageError(f"z_image with patches {patches}: takes one of 2 x 2 x 1, as its pipeline uses")
        self.patch = 2
        self.channels = channels_of(self.name, config["in_channels"], channels)
        self.longest: int = min(config["axes_lens"][1:])
        self.condition_shapes = {"cap_feats": (None, config["cap_feat_dim"])}

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward for a batch [B, C, H, W]."""
        return {
            "x": list(step.x_sigma.unsqueeze(2).unbind(0)),
            "t": 1 - step.sigma.float(),
            "cap_feats": list(step.condition["cap_feats"].unbind(0)),
            "return_dict": False,
        }

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer as a velocity [B, C, H, W] in the sign of Eq. 2."""
        return -torch.stack(output[0]).squeeze(2)

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """The model embeds time in the dtype it is given in."""

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """Within it image tokens are turned by ``rope``; captions, which count along the first axis alone, as ever."""
        return with_positions(transformer, "rope_embedder", rope, stretched_positions)


def stretched_positions(native: Any, rope: Rope) -> Any:
    """The model's position embedding with other tables: a factor for every frequency of rows and columns."""
    positions = type(native)(native.theta, native.axes_dims, native.axes_lens)
    positions.freqs_cis = []
    for axis, (dim, length) in enumerate(zip(native.axes_dims, native.axes_lens, strict=True)):
        frequency = 1.0 / (native.theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
        if axis:
            frequency = frequency * band_factors(rope, axis - 1, frequency)
        angle = torch.outer(torch.arange(length, dtype=torch.float64), frequency).float()
        positions.freqs_cis.append(torch.polar(torch.ones_like(angle), angle))
    return positions
