"""Folds of images: enough to tell the spread of a policy's gradient, few enough to store products across sigma."""

import numpy as np
from jaxtyping import Float, Int64

from analysis.errors import UsageError

FEWEST, MOST = 8, 16


def fold_of_images(images: int) -> Int64[np.ndarray, " image"]:
    """The fold of each image: neighbours together, so that images that belong together mostly share a fold.

    As many folds as the largest divisor of ``images`` from 8 to 16, or 16 of nearly equal size. UsageError for fewer
    than 8 images.
    """
    if images < FEWEST:
        raise UsageError(f"--policy with {images} images: takes {FEWEST} or more, a fold each; give more --images")
    even = [folds for folds in range(FEWEST, MOST + 1) if images % folds == 0]
    folds = max(even, default=MOST)
    return np.arange(images) * folds // images


def fold_means(
    means: Float[np.ndarray, "arm image k"], fold_of_image: Int64[np.ndarray, " image"]
) -> Float[np.ndarray, "arm fold k"]:
    """Mean over the images of each fold."""
    return np.stack([means[:, fold_of_image == fold].mean(1) for fold in range(int(fold_of_image.max()) + 1)], 1)
