"""Caches that other tools wrote: what their readers share. They name no tiers and no autoencoder.

The native tier is the smallest multiple of 64 pixels that every image's native grid fits; a smaller latent of an image
is of the tier that its area says, in sixteenths of the native one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isqrt, prod
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.cache import autoencoder
from train.cache.cached import CachedLatents, Stored, StoredImage
from train.families import Family
from train.model_files import configuration

STEP, PARTS = 64, 16  # pixels between native tiers, and parts of one between lower ones
FACTORS = {"wan": 8, "qwenimage": 8, "cosmos": 8, "flux": 8, "sd3": 8, "z_image": 8}


@dataclass(frozen=True)
class FoundImage:
    """One image of a foreign cache: every latent it has, and its conditioning."""

    latents: tuple[Stored, ...]
    text: Mapping[str, Stored]


@dataclass(frozen=True)
class Tool:
    """archs: of each architecture in its files' names, the family, and whether its latents are not normalised."""

    name: str
    archs: Mapping[str, tuple[str, bool]]

    def normalises(self, folder: Path, arch: str, family: Family, model: Path) -> Callable[[Tensor], Tensor]:
        """What makes this project's latents of the tool's. UsageError where ``arch`` is of another family."""
        if arch not in self.archs:
            raise UsageError(
                f"{folder}: latents of {self.name} for {arch}; taken are those for {', '.join(self.archs)}"
            )
        of, raw = self.archs[arch]
        if of != family.name:
            raise UsageError(f"{folder}: latents of {self.name} for {of} ({arch}), the model is {family.name}")
        if not raw:
            return lambda z: z
        config = configuration(model / autoencoder.FOLDER / "config.json")
        if not config:
            raise UsageError(
                f"{folder}: {self.name} keeps latents of {of} as its autoencoder gives them; to scale them, "
                f"vae/config.json of the model is needed in {model}"
            )
        return lambda z: autoencoder.normalised(z, SimpleNamespace(**config))


def arranged(images: Mapping[str, FoundImage], family: Family, model: Path, tool: Tool) -> CachedLatents:
    """The images with tiers for their latents."""
    try:
        factor = autoencoder.unit_of(model)
    except UsageError:  # the transformer alone was given
        factor = FACTORS[family.name]
    areas = {name: [factor**2 * prod(s.shape[-2:]) for s in image.latents] for name, image in images.items()}
    native = STEP * -(-ceil_root(max(max(of) for of in areas.values())) // STEP)
    found = {}
    for name, image in images.items():
        by_tier: dict[int, Stored] = {}
        for area, stored in zip(areas[name], image.latents, strict=True):
            tier = tier_of(area, max(areas[name]), native)
            if tier in by_tier:
                raise UsageError(
                    f"image {name}: latents of {list(by_tier[tier].shape[-2:])} and {list(stored.shape[-2:])} are both "
                    f"of tier {tier}; keep one of them"
                )
            by_tier[tier] = stored
        found[name] = StoredImage(by_tier, image.text)
    return CachedLatents(family, native, found, f"{tool.name} wrote what is there; train cache makes every kind")


def tier_of(area: int, largest: int, native: int) -> int:
    """The tier of a latent whose grid has ``area`` pixels, of an image whose native one has ``largest``."""
    return native if area == largest else round(PARTS * (area / largest) ** 0.5) * native // PARTS


def ceil_root(number: int) -> int:
    """The smallest whole number whose square is ``number`` or more."""
    root = isqrt(number)
    return root if root * root == number else root + 1


def check_shape(where: str, shape: tuple[int, ...], named: tuple[int, ...], family: Family) -> tuple[int, ...]:
    """A latent's shape, without an axis of one frame. UsageError unless its sides are those that its name says.

    named: frames, height and width.
    """
    if len(shape) == 3:
        found = (1, *shape[-2:])
    elif len(shape) == 4:
        found = shape[1:]
    else:
        raise UsageError(f"{where} has shape {list(shape)}; a latent has 3 axes, or 4 with frames")
    if 0 in shape:
        raise UsageError(f"{where} has shape {list(shape)}, which holds nothing; remove it and make it again")
    if tuple(found) != named:
        sides = " x ".join(map(str, named if named[0] != 1 else named[1:]))
        raise UsageError(f"{where} has shape {list(shape)}, its name says {sides}; remove it and make it again")
    if shape[0] != family.channels:
        raise UsageError(f"{where} has {shape[0]} channels, this {family.name} takes {family.channels}")
    return (shape[0], *shape[-2:]) if found[0] == 1 else shape


def one_frame(latent: Tensor) -> Tensor:
    """[C, 1, H, W] -> [C, H, W]; others as they are."""
    return latent.squeeze(1) if latent.ndim == 4 and latent.shape[1] == 1 else latent


def padded(text: Tensor, tokens: int) -> Tensor:
    """[T, D] -> [tokens, D], with zeros, as Wan's pipeline pads."""
    return torch.cat([text, text.new_zeros(tokens - text.shape[0], text.shape[1])])
