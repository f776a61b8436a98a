"""Model families: how each kind of transformer is fed and read.

``family_class("FluxTransformer2DModel")`` finds one. Other packages add families through the entry
point group ``sigma_probes.families``; the entry's value is a class of the shape of ``Family``.
"""

from importlib.metadata import entry_points

from analysis.errors import UsageError
from train.families.family import Family, block_of, blocks, grid
from train.families.flux import Flux

__all__ = ["Family", "block_of", "blocks", "families", "family_class", "grid"]


def families() -> dict[str, type[Family]]:
    """Every known family by the name of its transformer class."""
    known: dict[str, type[Family]] = {Flux.transformer_class: Flux}
    for point in entry_points(group="sigma_probes.families"):
        family = point.load()
        known[family.transformer_class] = family
    return known


def family_class(transformer_class: str) -> type[Family]:
    """The family of a transformer, by the name of its class."""
    known = families()
    if transformer_class not in known:
        names = ", ".join(f"{family.name} ({cls})" for cls, family in sorted(known.items()))
        raise UsageError(f"model of class {transformer_class}: no such family; known: {names}")
    return known[transformer_class]
