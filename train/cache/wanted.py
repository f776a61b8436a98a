"""What a cache will hold, decided before anything is encoded: each latent with the pixels it is made of."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from train.cache import index
from train.cache.buckets import Size, bucket
from train.cache.photographs import Photograph, sha256_of
from train.pictures import resized

#: What may never change without another word here: it is part of every key.
PIXELS = "RGB of 8 bits, transparent on white; largest centred cut of the grid's aspect, Lanczos"
POSTERIOR = "mode"


@dataclass(frozen=True)
class Latent:
    """One latent to be. kind: ``latents``, ``repromoted`` or ``reencoded``; tier: its own, of repromoted the lower."""

    kind: str
    tier: int
    path: str
    origin: Mapping[str, object]
    pixels: Callable[[np.ndarray], np.ndarray]  # of the photograph -> what is encoded, uint8 [H, W, 3]


def grids(photograph: Photograph, tiers: tuple[int, ...], unit: int) -> dict[int, Size]:
    """The photograph's grid in every tier, in pixels."""
    return {tier: bucket(photograph.size, tier, unit) for tier in tiers}


def latents(photograph: Photograph, sizes: Mapping[int, Size], made: Mapping[str, Any], *, plain: bool) -> list[Latent]:
    """Every latent of a photograph in its grids. made: what of the model decides a latent; plain: the tiers alone."""
    native, *lower = sizes
    common = {"image": photograph.sha256, "pixels": PIXELS, "posterior": POSTERIOR, **made}

    def latent(kind: str, tier: int, way: list[Size], pixels: Callable[[np.ndarray], np.ndarray]) -> Latent:
        origin = {**common, "kind": kind, "grids": way}
        return Latent(kind, tier, index.path_of(index.LATENTS, origin), origin, pixels)

    def at(size: Size) -> Callable[[np.ndarray], np.ndarray]:
        return lambda pixels: resized(pixels, size)

    def by_way_of(low: Size) -> Callable[[np.ndarray], np.ndarray]:
        return lambda pixels: up_again(pixels, low, sizes[native])

    found = [latent("latents", tier, [size], at(size)) for tier, size in sizes.items()]
    if not plain:
        found += [latent("repromoted", tier, [sizes[tier], sizes[native]], by_way_of(sizes[tier])) for tier in lower]
        found.append(latent("reencoded", native, [sizes[native]], at(sizes[native])))
    return found


def up_again(pixels: np.ndarray, low: Size, native: Size) -> np.ndarray:
    """The pixels of the lower grid, enlarged to the native one."""
    height, width = native
    small = Image.fromarray(resized(pixels, low))
    return np.asarray(small.resize((width, height), Image.Resampling.LANCZOS))


def text(caption: str, made: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    """Path and origin of a caption's conditioning."""
    origin = {"caption": sha256_of(caption), **made}
    return index.path_of(index.TEXTS, origin), origin
