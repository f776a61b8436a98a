"""Every array and label of a probe store: names, dimensions, dtypes, units.

Arrays of a cell have the dimension ``sigma`` alone; those of policies (Eq. 6) join all cells, so they also have
``sigma_2``, and are there only once every cell is done. In a store of several checkpoints of one run every array leads
with ``step``, and a cell is one sigma at one step.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Array:
    """One array of the contract."""

    dims: tuple[str, ...]
    dtype: str
    units: str
    long_name: str
    optional: bool = False


@dataclass(frozen=True)
class Coordinate:
    """One labelled dimension: ``kind`` is numpy's dtype kind, "U" for text."""

    kind: str
    units: str
    long_name: str
    twin_of: str | None = None
    optional: bool = False


STEP = "step"
_SQUARED = "squared gradient norm in the metric's unit"

ARRAYS = {
    "gram_image": Array(
        ("metric", "sigma", "block", "arm", "image", "arm_2", "image_2"),
        "float64",
        _SQUARED,
        "inner products of the images' gradients, each a mean over draws (Eq. 4)",
    ),
    "gram_draw": Array(
        ("metric", "sigma", "block", "image", "arm", "draw", "arm_2", "draw_2"),
        "float64",
        _SQUARED,
        "inner products of one image's gradients, draw by draw (Eq. 5)",
    ),
    "gram_cross": Array(
        ("metric", "sigma", "block", "image", "arm", "draw", "arm_2"),
        "float64",
        _SQUARED,
        "inner products of one draw's gradient with the sum over images of their means (Eq. 5b)",
        optional=True,
    ),
    "loss": Array(
        ("sigma", "arm", "image", "draw"), "float64", "squared latent units", "flow-matching loss of a sample (Eq. 3)"
    ),
    "seconds": Array(("sigma", "arm"), "float64", "s", "wall-clock time of an arm's gradients"),
    "tokens": Array(("arm", "image"), "int64", "tokens", "image tokens the transformer reads per sample"),
    "images_used": Array(("sigma",), "int64", "images", "how many images, from the first, the cell holds"),
    "done": Array(("sigma",), "bool", "1", "whether the cell is complete"),
    "gram_policy": Array(
        ("metric", "block", "sigma", "arm", "fold", "sigma_2", "arm_2", "fold_2"),
        "float64",
        _SQUARED,
        "inner products of gradients across sigma, each a mean over a fold of images (Eq. 6)",
        optional=True,
    ),
    "gram_policy_corpus": Array(
        ("metric", "block", "sigma", "arm", "draw", "sigma_2", "arm_2", "draw_2"),
        "float64",
        _SQUARED,
        "inner products of gradients across sigma, each a mean over all images at one draw (Eq. 6)",
        optional=True,
    ),
    "fold_of_image": Array(("image",), "int64", "1", "fold that an image belongs to (Eq. 6)", optional=True),
}

COORDINATES = {
    "step": Coordinate("i", "optimiser steps", "steps of training done at the checkpoint", optional=True),
    "metric": Coordinate("U", "1", "linear map under which gradients are compared"),
    "sigma": Coordinate("f", "1", "flow-matching noise level, 1 is pure noise"),
    "block": Coordinate("U", "1", "transformer block, in depth order"),
    "arm": Coordinate("U", "1", "way of making a training step"),
    "image": Coordinate("U", "1", "image with its conditioning"),
    "draw": Coordinate("i", "1", "noise draw of an image"),
    "arm_2": Coordinate("U", "1", "arm of the second gradient", twin_of="arm"),
    "image_2": Coordinate("U", "1", "image of the second gradient", twin_of="image"),
    "draw_2": Coordinate("i", "1", "draw of the second gradient", twin_of="draw"),
    "sigma_2": Coordinate("f", "1", "noise level of the second gradient", twin_of="sigma", optional=True),
    "fold": Coordinate("i", "1", "fold of images", optional=True),
    "fold_2": Coordinate("i", "1", "fold of the second gradient", twin_of="fold", optional=True),
}

POLICY = ("gram_policy", "gram_policy_corpus", "fold_of_image")
"""The arrays that ``probes grad --policy`` adds, and with them the labels ``sigma_2``, ``fold`` and ``fold_2``."""


def dims_of(name: str, *, steps: bool) -> tuple[str, ...]:
    """Dimensions of an array of the contract, in a store that has the dimension ``step`` or has not."""
    return (STEP, *ARRAYS[name].dims) if steps else ARRAYS[name].dims


def is_of_cell(dims: Sequence[Hashable]) -> bool:
    """Whether an array of these dimensions holds one entry for each cell."""
    return "sigma" in dims and "sigma_2" not in dims
