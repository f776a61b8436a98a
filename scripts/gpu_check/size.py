"""How large the parts are, and the Flux-shaped model of random weights that they share."""

from dataclasses import dataclass
from pathlib import Path

import torch

from train.crn import normal
from train.families import family_class
from train.tensor_latents import TensorLatents

FLUX = {
    "patch_size": 1, "in_channels": 64, "num_layers": 2, "num_single_layers": 3, "attention_head_dim": 128,
    "num_attention_heads": 24, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
    "axes_dims_rope": [16, 56, 56], "guidance_embeds": False,
}  # fmt: skip
TINY_FLUX = FLUX | {
    "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16, "num_attention_heads": 2,
    "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": [4, 6, 6],
}  # fmt: skip
TIER = 1024
IMAGES = ("a", "b", "c")


def not_run(why: str) -> dict[str, object]:
    return {"state": "not run", "why": why}


@dataclass(frozen=True)
class Size:
    """device: cuda or cpu; folder: what the parts leave for each other."""

    device: str
    tiny: bool
    folder: Path

    def why_not(self) -> str:
        """Why nothing can run here; empty where it can."""
        return "torch finds no CUDA device" if self.device == "cuda" and not torch.cuda.is_available() else ""

    @property
    def attention(self) -> tuple[int, int, int, int]:
        """Samples, heads, tokens, head dimension."""
        return (1, 2, 300, 16) if self.tiny else (1, 24, 4608, 128)

    @property
    def side(self) -> int:
        """Of the latent: 64 x 64 tokens."""
        return 8 if self.tiny else 128

    @property
    def text(self) -> int:
        """Tokens."""
        return 5 if self.tiny else 512

    @property
    def steps(self) -> int:
        return 3 if self.tiny else 50

    def model(self) -> str:
        """The folder of the model, made by the first part that asks."""
        from diffusers import FluxTransformer2DModel

        folder = self.folder / "flux"
        if not (folder / "transformer" / "config.json").exists():
            torch.manual_seed(0)
            with torch.device(self.device):
                model = FluxTransformer2DModel(**(TINY_FLUX if self.tiny else FLUX)).bfloat16()
            model.save_pretrained(folder / "transformer")
        return str(folder)

    def latents(self) -> TensorLatents:
        """White noise as latents and texts: 4096 + 512 tokens."""
        config = TINY_FLUX if self.tiny else FLUX
        family = family_class("FluxTransformer2DModel")(config)
        shapes = {name: [n or self.text for n in shape] for name, shape in family.condition_shapes.items()}
        return TensorLatents(
            family,
            TIER,
            {name: {TIER: drawn((family.channels, self.side, self.side), name)} for name in IMAGES},
            {image: {name: drawn(shape, image + name) for name, shape in shapes.items()} for image in IMAGES},
        )


def drawn(shape: tuple[int, ...] | list[int], purpose: str) -> torch.Tensor:
    return normal(tuple(shape), seed=0, purpose=purpose)


def peak_bytes(device: str) -> int | None:
    """Most that torch has held on the device; None on a CPU."""
    return torch.cuda.max_memory_allocated() if device == "cuda" else None
