"""Model families: how each kind of transformer is fed and read.

``family_class("FluxTransformer2DModel")`` finds one. Other packages add families through the entry
point group ``sigma_probes.families``; the entry's value is a class of the shape of ``Family``
(docs/adding-a-family.md).
"""

from importlib.metadata import entry_points

from analysis.errors import UsageError
from train.families.cosmos import Cosmos
from train.families.family import (
    Family,
    block_of,
    blocks,
    check_condition,
    check_latent,
    grid,
    image_tokens,
    text_tokens,
    unconditional,
)
from train.families.flux import Flux
from train.families.qwenimage import QwenImage
from train.families.sd3 import SD3
from train.families.wan import Wan
from train.families.z_image import ZImage

__all__ = [
    "Family",
    "block_of",
    "blocks",
    "check_condition",
    "check_latent",
    "families",
    "family_class",
    "grid",
    "image_tokens",
    "text_tokens",
    "unconditional",
]

BUILT_IN: tuple[type[Family], ...] = (Flux, SD3, QwenImage, Wan, ZImage, Cosmos)


def families() -> dict[str, type[Family]]:
    """Every known family by the name of its transformer class."""
    known: dict[str, type[Family]] = {family.transformer_class: family for family in BUILT_IN}
    for point in entry_points(group="sigma_probes.families"):
        family = point.load()
        known[family.transformer_class] = family
    return known


def family_class(transformer_class: str) -> type[Family]:
    """The family of a transformer, by the name of its class."""
    known = families()
    if transformer_class not in known:
        names = ", ".join(f"{family.name} ({cls})" for cls, family in sorted(known.items()))
        raise UsageError(
            f"model of class {transformer_class}: no such family; known: {names}; "
            "docs/adding-a-family.md shows how to add one"
        )
    return known[transformer_class]
