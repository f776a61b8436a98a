"""How low may a further cosine come out by chance, after k that are of one kind?

Cosines are compared as Fisher's z = artanh(c) (Biometrika 10, 1915): near 1, where 1 - c spreads by factors, it is
-log(1 - c)/2 but for a constant; near 0 it is c. A further value of n(mean, s) then lies below the lower end of the
two-sided interval z_mean -+ t(k - 1) s sqrt(1 + 1/k) in half of 1 - level of all cases.
"""

import numpy as np
from jaxtyping import Float
from scipy import special

NEAREST = 1 - 2.0**-52
"""Cosines beyond it are moved here: rounding leaves no more to tell them from 1."""


def lowest_expected(cosines: Float[np.ndarray, "*cells k"], level: float = 0.95) -> Float[np.ndarray, "*cells"]:
    """Lower end of the prediction interval for one more cosine, k >= 2 along the last axis. NaN where one is NaN.

    Source: Student's t of a new observation (Geisser, Predictive Inference, 1993, chapter 2), on Fisher's scale.
    """
    k = cosines.shape[-1]
    if k < 2:
        raise ValueError(f"{k} cosines have no spread: want two or more")
    z = fisher(cosines)
    reach = float(special.stdtrit(k - 1, (1 + level) / 2)) * z.std(axis=-1, ddof=1) * np.sqrt(1 + 1 / k)
    return np.asarray(np.tanh(z.mean(axis=-1) - reach))


def middle(cosines: Float[np.ndarray, "*cells k"]) -> Float[np.ndarray, "*cells"]:
    """Their mean on Fisher's scale, as a cosine again."""
    return np.asarray(np.tanh(fisher(cosines).mean(axis=-1)))


def fisher(cosines: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """artanh, finite also at 1."""
    return np.arctanh(np.clip(cosines, -NEAREST, NEAREST))
