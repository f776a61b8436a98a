"""What a centred Gram matrix says about the eigenvalues of the covariance behind it."""

import numpy as np
from jaxtyping import Float


def centred(gram: Float[np.ndarray, "*cells n n"]) -> Float[np.ndarray, "*cells n n"]:
    """Inner products of the vectors less their mean."""
    rows = gram.mean(-1, keepdims=True)
    columns = gram.mean(-2, keepdims=True)
    return gram - rows - columns + gram.mean((-2, -1), keepdims=True)


def traces(gram: Float[np.ndarray, "*cells n n"]) -> tuple[Float[np.ndarray, "*cells"], Float[np.ndarray, "*cells"]]:
    """Unbiased tr Sigma and, for Gaussian vectors, tr Sigma^2 of the vectors' covariance (Bai and Saranadasa 1996).

    Parameters may far outnumber the n >= 3 vectors.
    """
    freedom = gram.shape[-1] - 1
    scatter = centred(gram)
    trace = np.trace(scatter, axis1=-2, axis2=-1) / freedom
    squares = (scatter**2).sum((-2, -1)) / freedom**2
    factor = freedom**2 / ((freedom + 2) * (freedom - 1))
    return trace, factor * (squares - trace**2 / freedom)


def typical_eigenvalue(gram: Float[np.ndarray, "*cells n n"]) -> Float[np.ndarray, "*cells"]:
    """lambda = tr Sigma^2 / tr Sigma, the variance along a direction drawn from the noise itself; 0 without noise."""
    trace, square = traces(gram)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(trace > 0.0, np.maximum(square, 0.0) / trace, 0.0)
