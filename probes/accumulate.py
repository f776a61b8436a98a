"""From per-sample gradients to the Grams of one cell: Eq. 4, 5 and 5b of docs/method.md.

Gradients arrive image by image, all arms of an image before the next. Kept are the image means,
[arms, images, coordinates], and, for Eq. 5b, every draw, [arms, images, draws, coordinates]; both in
float64, in memory or in scratch files (``Room`` says which). Everything else is gone with its image.
For policies also the means over images of each draw, [arms, draws, coordinates].
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

Array = np.ndarray
#: Makes a zero-filled float64 array of a shape, in memory or in a scratch file.
Allocate = Callable[[tuple[int, ...]], Array]


IMAGE_AXES = {"gram_image": (2, 4), "gram_draw": (1,), "gram_cross": (1,)}
"""Which axes of a cell's arrays, the block axis first, are of images."""


@dataclass(frozen=True)
class Axes:
    """Sizes of a cell: how many arms, images and draws, and the coordinates of each block."""

    arms: int
    images: int
    draws: int
    coordinates: Mapping[str, int]


class Cell:
    """The Grams of one (metric, sigma) cell, block by block."""

    def __init__(self, axes: Axes, allocate: Allocate, *, cross: bool, draw_means: bool = False) -> None:
        self.axes = axes
        a, n, d = axes.arms, axes.images, axes.draws
        self._means = {block: allocate((a, n, k)) for block, k in axes.coordinates.items()}
        self._draws = {block: allocate((a, n, d, k)) for block, k in axes.coordinates.items()} if cross else None
        self._draw_sums = {block: allocate((a, d, k)) for block, k in axes.coordinates.items() if draw_means}
        self.gram_draw = np.zeros((len(axes.coordinates), n, a, d, a, d))

    def add(self, images: Sequence[int], block: str, gradients: Float[Array, "arms images draws coordinates"]) -> None:
        """Every arm's and draw's gradient of ``images``, in ``block``. Each image is added once."""
        at = list(self.axes.coordinates).index(block)
        self._means[block][:, images] = gradients.mean(axis=2)
        if self._draws is not None:
            self._draws[block][:, images] = gradients
        if self._draw_sums:
            self._draw_sums[block] += gradients.sum(axis=1)
        for i, image in enumerate(images):
            self.gram_draw[at, image] = draw_gram(gradients[:, i])

    def arrays(self, used: int | None = None) -> dict[str, Array]:
        """gram_image, gram_draw and, where every draw was kept, gram_cross, with the block axis first.

        used: how many images were added, from the first; what is of the others is NaN. None: all.
        """
        n = self.axes.images if used is None else used
        image, draw = self.grams(n)
        found = {"gram_image": image, "gram_draw": draw}
        if self._draws is not None:
            pairs = zip(self._draws.values(), self._means.values(), strict=True)
            found["gram_cross"] = np.stack([cross_gram(draws[:, :n], mean[:, :n]) for draws, mean in pairs])
        if n == self.axes.images:
            return found
        return {name: with_missing(array, n, self.axes.images, IMAGE_AXES[name]) for name, array in found.items()}

    def grams(self, used: int) -> tuple[Array, Array]:
        """gram_image and gram_draw of the first ``used`` images, with the block axis first."""
        image = np.stack([image_gram(mean[:, :used]) for mean in self._means.values()])
        return image, self.gram_draw[:, :used]

    def image_means(self, block: str) -> Float[Array, "arms images k"]:
        """Of each arm and image, over its draws."""
        return self._means[block]

    def draw_means(self, block: str) -> Float[Array, "arms draws k"]:
        """Of each arm and draw, over all images."""
        return self._draw_sums[block] / self.axes.images


def with_missing(array: Array, used: int, images: int, axes: tuple[int, ...]) -> Array:
    """``array`` of the first ``used`` images as one of all ``images``, NaN for the others. axes: those of images."""
    shape = tuple(images if axis in axes else size for axis, size in enumerate(array.shape))
    whole = np.full(shape, np.nan)
    whole[tuple(slice(used) if axis in axes else slice(None) for axis in range(array.ndim))] = array
    return whole


def image_gram(means: Float[Array, "arms images k"]) -> Float[Array, "arms images arms images"]:
    """Eq. 4: inner products of image means."""
    a, n, k = means.shape
    flat = means.reshape(a * n, k)
    return symmetric(flat @ flat.T).reshape(a, n, a, n)


def draw_gram(gradients: Float[Array, "arms draws k"]) -> Float[Array, "arms draws arms draws"]:
    """Eq. 5: inner products of one image's draws."""
    a, d, k = gradients.shape
    flat = gradients.reshape(a * d, k)
    return symmetric(flat @ flat.T).reshape(a, d, a, d)


def cross_gram(
    draws: Float[Array, "arms images draws k"], means: Float[Array, "arms images k"]
) -> Float[Array, "images arms draws arms"]:
    """Eq. 5b: each draw against the sum of an arm's image means."""
    total = means.sum(axis=1)
    return np.stack([draws[:, i] @ total.T for i in range(draws.shape[1])])


def symmetric(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The same Gram with its two triangles equal to the bit, which a blocked product need not give."""
    return (gram + gram.T) / 2
