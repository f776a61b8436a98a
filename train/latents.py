"""Where clean latents come from: a named image at any tier.

``PixelLatents`` serves models that work on pixels themselves, as the mini model does: its
"autoencoder" scales pixel values. Latents of real autoencoders have the same face.
"""

from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from analysis.errors import UsageError
from train.families import Family, unconditional
from train.pictures import Picture, digest, resized, shape_at


class Latents(Protocol):
    """Clean latents of a corpus. ``tier`` is its native tier, in pixels."""

    tier: int
    names: tuple[str, ...]

    def shape(self, name: str, tier: int) -> tuple[int, int]:
        """Latent height and width of an image at ``tier``; UsageError where the patch does not divide it."""
        ...

    def latent(self, name: str, tier: int) -> Tensor:
        """Pixels resized to ``tier``, then encoded: [C, H, W], float32."""
        ...

    def repromoted(self, name: str, tier: int) -> Tensor:
        """Pixels down to ``tier`` and up again, then encoded on the native grid: [C, H, W], float32."""
        ...

    def reencoded(self, name: str) -> Tensor:
        """Encoded, decoded to pixels of 8 bits and encoded again on the native grid: [C, H, W], float32."""
        ...

    def condition(self, name: str) -> dict[str, Tensor]:
        """The image's conditioning, without a batch axis, by the family's names."""
        ...

    def digest(self) -> str:
        """SHA-256 over everything that decides the latents."""
        ...


class PixelLatents:
    """Pictures as latents: pixel values in [0, 255] scaled to [-scale, scale], channels first."""

    def __init__(self, pictures: dict[str, Picture], family: Family, *, tier: int, scale: float) -> None:
        self.tier, self.scale, self.family = tier, scale, family
        self.names = tuple(pictures)
        self._pictures = pictures
        self.latent = lru_cache(maxsize=4096)(self.latent)  # a sweep asks for the same few again at each sigma
        self.repromoted = lru_cache(maxsize=4096)(self.repromoted)

    def shape(self, name: str, tier: int) -> tuple[int, int]:
        if tier % self.family.patch:
            below = tier - tier % self.family.patch
            near = " or ".join(str(t) for t in (below, below + self.family.patch) if t)
            raise UsageError(f"tier {tier}: not a multiple of the model's patch of {self.family.patch}; take {near}")
        if tier > self.tier:
            raise UsageError(f"tier {tier}: larger than the native tier of {self.tier}; take a smaller one")
        return shape_at(self._pictures[name].pixels.shape[:2], tier, self.family.patch)

    def latent(self, name: str, tier: int) -> Tensor:
        return self._encode(self._at(name, tier))

    def repromoted(self, name: str, tier: int) -> Tensor:
        height, width = self.shape(name, self.tier)
        small = Image.fromarray(self._at(name, tier))
        return self._encode(np.asarray(small.resize((width, height), Image.Resampling.LANCZOS)))

    def reencoded(self, name: str) -> Tensor:
        return self.latent(name, self.tier)  # scaling back gives the same 8 bits

    def condition(self, name: str) -> dict[str, Tensor]:
        return {key: value[0] for key, value in unconditional(self.family, 1).items()}

    def digest(self) -> str:
        return digest(self._pictures, f"pixels x {self.scale} at {self.tier}")

    def _at(self, name: str, tier: int) -> np.ndarray:
        return resized(self._pictures[name].pixels, self.shape(name, tier))

    def _encode(self, pixels: np.ndarray) -> Tensor:
        return (torch.from_numpy(pixels.astype(np.float32)).movedim(-1, 0) / 127.5 - 1) * self.scale


def pixel_latents(folder: Path, family: Family, *, tier: int, scale: float) -> PixelLatents:
    """The pictures of ``folder`` as latents."""
    from train.pictures import read_folder

    return PixelLatents(read_folder(folder), family, tier=tier, scale=scale)
