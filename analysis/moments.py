"""From Gram arrays to the moments that every figure is made of, for either population.

    moments = corpus(gram_image, gram_draw, gram_cross, baseline=0, arms=[1, 2])

``images``: the unit is the image, and the figure is about images like these. ``corpus``: the unit is a noise draw
within an image, and the figure is about exactly these images. Arrays are those of one sigma; their leading axes are
cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from analysis.base import spectrum, ustatistic
from analysis.base.jackknife import Jackknifed

GramImage = Float[np.ndarray, "*cells arm n arm n"]
GramDraw = Float[np.ndarray, "*cells n arm draw arm draw"]
GramCross = Float[np.ndarray, "*cells n arm draw arm"]
Pair = Float[np.ndarray, "*cells arm n n"]
Pairs = tuple[Pair, Pair, Pair, Pair]
"""Gram matrices over units: baseline, symmetrised cross, treated, difference."""


@dataclass(frozen=True)
class Moments:
    """Moments of the baseline and of each treated arm, one cell per (leading cell, treated arm).

    ``baseline``, ``mixed``, ``treated``   |mu0|^2, <mu0, mu_t>, |mu_t|^2 (Eq. 7)
    ``bias``                               |mu_t - mu0|^2 (Eq. 7)
    ``noise_baseline``, ``noise_treated``  S of one sample (Eq. 10): total for images, within an image for the corpus
    ``same_image``                         mean over images of an image's own squared bias (Eq. 12); None with one draw
    ``bias_curvature``, ...                4 lambda / n, growth of a square's sampling variance with the square
    ``bias_pairs``, ``baseline_pairs``     of a square's variance, what comes from pairs of noise (doubled)
    ``bias_gram``, ``baseline_gram``       per-image Gram matrices of delta and of the baseline
    """

    baseline: Jackknifed
    mixed: Jackknifed
    treated: Jackknifed
    bias: Jackknifed
    noise_baseline: Jackknifed
    noise_treated: Jackknifed
    same_image: Jackknifed | None
    bias_curvature: Float[np.ndarray, "*cells arm"]
    baseline_curvature: Float[np.ndarray, "*cells arm"]
    same_image_curvature: Float[np.ndarray, "*cells arm"]
    bias_pairs: Float[np.ndarray, "*cells arm"]
    baseline_pairs: Float[np.ndarray, "*cells arm"]
    bias_gram: Pair
    baseline_gram: Pair


def images(gram_image: GramImage, gram_draw: GramDraw, *, baseline: int, arms: Sequence[int]) -> Moments:
    """Moments of the population that the images come from; n >= 3 images."""
    n, draws = gram_draw.shape[-5], gram_draw.shape[-1]
    native_draw, _, treated_draw, delta_draw = _draw_pairs(gram_draw, baseline, arms)
    return over_units(
        _pairs(gram_image, baseline, arms),
        _mean_square(native_draw),
        _mean_square(treated_draw),
        same_image=ustatistic.mean_over_images(ustatistic.same_image(delta_draw)) if draws > 1 else None,
        same_image_curvature=_draw_curvature(delta_draw) * n,
    )


def over_units(
    pairs: Pairs,
    native_square: Float[np.ndarray, "*cells arm n"],
    treated_square: Float[np.ndarray, "*cells arm n"],
    *,
    same_image: Jackknifed | None = None,
    same_image_curvature: Float[np.ndarray, "*cells arm"] | None = None,
) -> Moments:
    """Moments from n >= 3 independent units: images, folds of images, or draws of the whole corpus.

    pairs: Gram matrices over units; squares: of each unit, the mean |g|^2 of its samples.
    """
    native, cross, treated, delta = pairs
    n = delta.shape[-1]
    first, last = ustatistic.over_images(native), ustatistic.over_images(treated)
    return Moments(
        baseline=first,
        mixed=ustatistic.over_images(cross),
        treated=last,
        bias=ustatistic.over_images(delta),
        noise_baseline=_less(ustatistic.mean_over_images(native_square), first),
        noise_treated=_less(ustatistic.mean_over_images(treated_square), last),
        same_image=same_image,
        bias_curvature=4.0 * spectrum.eigenvalue_along_bias(*spectrum.traces(delta)) / n,
        baseline_curvature=4.0 * spectrum.eigenvalue_along_bias(*spectrum.traces(native)) / n,
        same_image_curvature=np.zeros(delta.shape[:-2]) if same_image_curvature is None else same_image_curvature,
        bias_pairs=spectrum.pair_variance(delta),
        baseline_pairs=spectrum.pair_variance(native),
        bias_gram=delta,
        baseline_gram=native,
    )


def corpus(
    gram_image: GramImage, gram_draw: GramDraw, gram_cross: GramCross, *, baseline: int, arms: Sequence[int]
) -> Moments:
    """Moments of exactly these images, uncertain by their noise draws alone; D >= 4 draws."""
    native, cross, treated, delta = _pairs(gram_image, baseline, arms)
    native_draw, cross_draw, treated_draw, delta_draw = _draw_pairs(gram_draw, baseline, arms)
    native_sum, cross_sum, treated_sum = _cross_pairs(gram_cross, baseline, arms)
    delta_sum = treated_sum - 2.0 * cross_sum + native_sum
    curvature = _draw_curvature(delta_draw)
    return Moments(
        baseline=ustatistic.over_draws(native, native_draw, native_sum),
        mixed=ustatistic.over_draws(cross, cross_draw, cross_sum),
        treated=ustatistic.over_draws(treated, treated_draw, treated_sum),
        bias=ustatistic.over_draws(delta, delta_draw, delta_sum),
        noise_baseline=_within(native_draw),
        noise_treated=_within(treated_draw),
        same_image=ustatistic.mean_same_image_over_draws(delta_draw),
        bias_curvature=curvature,
        baseline_curvature=_draw_curvature(native_draw),
        same_image_curvature=curvature * delta_draw.shape[-3],
        bias_pairs=_draw_pair_variance(delta_draw),
        baseline_pairs=_draw_pair_variance(native_draw),
        bias_gram=delta,
        baseline_gram=native,
    )


def _pairs(gram: GramImage, baseline: int, arms: Sequence[int]) -> Pairs:
    """Gram matrices over images [*cells, arm, n, n]: baseline, symmetrised cross, treated, difference."""
    native = gram[..., baseline, :, baseline, :]
    cross = np.stack([gram[..., baseline, :, arm, :] for arm in arms], axis=-3)
    treated = np.stack([gram[..., arm, :, arm, :] for arm in arms], axis=-3)
    cross = 0.5 * (cross + cross.swapaxes(-1, -2))
    native = np.broadcast_to(native[..., None, :, :], cross.shape)
    return native, cross, treated, treated - 2.0 * cross + native


def _draw_pairs(gram: GramDraw, baseline: int, arms: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Gram matrices over one image's draws [*cells, arm, n, draw, draw], in the order of ``_pairs``."""
    native = gram[..., baseline, :, baseline, :]
    cross = np.stack([gram[..., baseline, :, arm, :] for arm in arms], axis=-4)
    treated = np.stack([gram[..., arm, :, arm, :] for arm in arms], axis=-4)
    cross = 0.5 * (cross + cross.swapaxes(-1, -2))
    native = np.broadcast_to(native[..., None, :, :, :], cross.shape)
    return native, cross, treated, treated - 2.0 * cross + native


def _cross_pairs(gram: GramCross, baseline: int, arms: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Products of a draw with the sum of all image means [*cells, arm, n, draw]: baseline, cross, treated."""
    native = gram[..., baseline, :, baseline]
    there = np.stack([gram[..., baseline, :, arm] for arm in arms], axis=-3)
    back = np.stack([gram[..., arm, :, baseline] for arm in arms], axis=-3)
    treated = np.stack([gram[..., arm, :, arm] for arm in arms], axis=-3)
    return np.broadcast_to(native[..., None, :, :], there.shape), 0.5 * (there + back), treated


def _less(first: Jackknifed, second: Jackknifed) -> Jackknifed:
    return Jackknifed(first.value - second.value, first.replicates - second.replicates)


def _mean_square(draw: Float[np.ndarray, "*cells n draw draw"]) -> Float[np.ndarray, "*cells n"]:
    return np.diagonal(draw, axis1=-2, axis2=-1).mean(-1)


def _within(draw: Float[np.ndarray, "*cells n draw draw"]) -> Jackknifed:
    """W, the trace of the covariance over one image's draws (Eq. 10)."""
    return _less(ustatistic.mean_square_over_draws(draw), ustatistic.mean_same_image_over_draws(draw))


def _draw_curvature(draw: Float[np.ndarray, "*cells n draw draw"]) -> Float[np.ndarray, "*cells"]:
    """4 lambda for Sigma = sum of W_i / (n^2 D), the noise of the corpus mean.

    Products of different images' W are not stored; traces of them are at most the mean of those of each image's own
    powers (Hoelder), with equality when images have the same noise.
    """
    n, draws = draw.shape[-3:-1]
    if draws < 3:
        return np.zeros(draw.shape[:-3])
    trace, square, cube = (of_images.mean(-1) for of_images in spectrum.traces(draw))
    return 4.0 * spectrum.eigenvalue_along_bias(trace, square, cube) / (n * draws)


def _draw_pair_variance(draw: Float[np.ndarray, "*cells n draw draw"]) -> Float[np.ndarray, "*cells"]:
    """4 tr Sigma^2 for the same Sigma, bounded in the same way."""
    n, draws = draw.shape[-3:-1]
    square = spectrum.traces(draw)[1].mean(-1)
    return 4.0 * np.maximum(square, 0.0) / (n * draws) ** 2
