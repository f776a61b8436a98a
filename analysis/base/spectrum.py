"""What a centred Gram matrix says about the eigenvalues of the covariance behind it."""

import numpy as np
from jaxtyping import Float

SHARE = 0.5
"""Of tr Sigma^3 / tr Sigma^2: more takes power in power-law spectra, less is false too often in those of few directions
that stand out from very many."""


def centred(gram: Float[np.ndarray, "*cells n n"]) -> Float[np.ndarray, "*cells n n"]:
    """Inner products of the vectors less their mean."""
    rows = gram.mean(-1, keepdims=True)
    columns = gram.mean(-2, keepdims=True)
    return gram - rows - columns + gram.mean((-2, -1), keepdims=True)


def traces(
    gram: Float[np.ndarray, "*cells n n"],
) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Unbiased tr Sigma and, for Gaussian vectors, tr Sigma^2 and tr Sigma^3 of the vectors' covariance.

    From the moments of a Wishart matrix (Bai and Saranadasa 1996; Letac and Massam 2004). Parameters may far outnumber
    the n >= 3 vectors; three of them do not tell tr Sigma^3, which is then 0.
    """
    freedom = gram.shape[-1] - 1
    scatter = centred(gram) / freedom
    squared = scatter @ scatter
    first = np.trace(scatter, axis1=-2, axis2=-1)
    second = np.trace(squared, axis1=-2, axis2=-1)
    third = (squared * scatter).sum((-2, -1))
    square = freedom**2 / ((freedom + 2) * (freedom - 1)) * (second - first**2 / freedom)
    if freedom < 3:
        return first, square, np.zeros_like(first)
    cube = third - 3.0 * second * first / freedom + 2.0 * first**3 / freedom**2
    return first, square, freedom**4 / ((freedom - 1) * (freedom - 2) * (freedom + 2) * (freedom + 4)) * cube


def eigenvalue_along_bias(
    trace: Float[np.ndarray, "*cells"], square: Float[np.ndarray, "*cells"], cube: Float[np.ndarray, "*cells"]
) -> Float[np.ndarray, "*cells"]:
    """lambda, the variance of noise that is reckoned with along a bias of unknown direction; 0 without noise.

    That along a direction drawn from the noise itself, tr Sigma^2 / tr Sigma; where few directions stand out from very
    many, which are then seldom drawn, SHARE of the same mean under squared eigenvalues (docs/method.md, section 6).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        typical = np.where(trace > 0.0, np.maximum(square, 0.0) / trace, 0.0)
        outstanding = np.where(square > 0.0, np.maximum(cube, 0.0) / square, 0.0)
    return np.maximum(typical, SHARE * outstanding)


def pair_variance(gram: Float[np.ndarray, "*cells n n"]) -> Float[np.ndarray, "*cells"]:
    """Variance of U from pairs of noise alone, doubled as the jackknife doubles it."""
    n = gram.shape[-1]
    squares = centred(gram) ** 2
    off_diagonal = squares.sum((-2, -1)) - np.trace(squares, axis1=-2, axis2=-1)
    return 4.0 * off_diagonal / (n * (n - 1)) ** 2
