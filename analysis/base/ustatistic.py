"""The two U-statistics of docs/method.md, section 5: over images like these, and over the draws of exactly this corpus.

Both estimate the inner product of two mean gradients without the squares of single samples, which hold noise and
not signal, and both come with every delete-one replicate from sums of rows, in one pass.
"""

import numpy as np
from jaxtyping import Float

from analysis.base.jackknife import Jackknifed


def over_images(gram: Float[np.ndarray, "*cells n n"]) -> Jackknifed:
    """U[f] = mean of ``gram`` over pairs of different images (Eq. 7), one stratum of n >= 3 units.

    The gram need not be symmetric: row and column of a left-out image go together.
    """
    n = gram.shape[-1]
    diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
    row = gram.sum(-1) + gram.sum(-2) - 2.0 * diagonal
    total = 0.5 * row.sum(-1)
    replicates = (total[..., None] - row) / ((n - 1) * (n - 2))
    return Jackknifed(total / (n * (n - 1)), replicates[..., None, :])


def over_draws(
    image: Float[np.ndarray, "*cells n n"],
    draw: Float[np.ndarray, "*cells n draw draw"],
    cross: Float[np.ndarray, "*cells n draw"],
) -> Jackknifed:
    """n^-2 [sum over i != j <g_i, g_j> + sum over i of the mean over d != e of <g_id, g_ie>], n strata of D >= 3 units.

    ``image`` are inner products of image means, ``draw`` of one image's draws, ``cross`` of a draw with the sum of all
    image means (Eq. 4, 5, 5b), for one pair of arms and symmetrised over the pair.
    """
    n, draws = cross.shape[-2:]
    own = np.diagonal(image, axis1=-2, axis2=-1)
    diagonal = np.diagonal(draw, axis1=-2, axis2=-1)
    row = draw.sum(-1) - diagonal
    pairs = row.sum(-1)
    value = (image.sum((-2, -1)) - own.sum(-1) + pairs.sum(-1) / (draws * (draws - 1))) / n**2
    # <g_id, sum over j != i of the mean of j>; its mean over d is the image's share of the sum over i != j.
    others = cross - draw.mean(-1)
    mean_others = others.mean(-1, keepdims=True)
    without = 2.0 * (mean_others - others) / (draws - 1)
    inside = (pairs[..., None] - 2.0 * row) / ((draws - 1) * (draws - 2)) - pairs[..., None] / (draws * (draws - 1))
    return Jackknifed(value, value[..., None, None] + (without + inside) / n**2)


def mean_over_images(per_image: Float[np.ndarray, "*cells n"]) -> Jackknifed:
    """Plain mean of one figure per image, one stratum of n units."""
    n = per_image.shape[-1]
    total = per_image.sum(-1)
    return Jackknifed(total / n, ((total[..., None] - per_image) / (n - 1))[..., None, :])


def same_image(draw: Float[np.ndarray, "*cells n draw draw"]) -> Float[np.ndarray, "*cells n"]:
    """Mean over pairs of different draws of one image: an unbiased square without noise (Eq. 12)."""
    draws = draw.shape[-1]
    return (draw.sum((-2, -1)) - np.trace(draw, axis1=-2, axis2=-1)) / (draws * (draws - 1))


def mean_same_image_over_draws(draw: Float[np.ndarray, "*cells n draw draw"]) -> Jackknifed:
    """Mean over images of ``same_image``, with a draw left out within each image: n strata of D >= 3 units."""
    n, draws = draw.shape[-3:-1]
    row = draw.sum(-1) - np.diagonal(draw, axis1=-2, axis2=-1)
    pairs = row.sum(-1)
    value = pairs.sum(-1) / (n * draws * (draws - 1))
    change = (pairs[..., None] - 2.0 * row) / ((draws - 1) * (draws - 2)) - pairs[..., None] / (draws * (draws - 1))
    return Jackknifed(value, value[..., None, None] + change / n)


def mean_square_over_draws(draw: Float[np.ndarray, "*cells n draw draw"]) -> Jackknifed:
    """Mean over images and draws of |g_id|^2, with a draw left out within each image."""
    n, draws = draw.shape[-3:-1]
    squares = np.diagonal(draw, axis1=-2, axis2=-1)
    mean = squares.mean(-1, keepdims=True)
    value = squares.mean((-2, -1))
    return Jackknifed(value, value[..., None, None] + (mean - squares) / ((draws - 1) * n))
