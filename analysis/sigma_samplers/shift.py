"""Shifting sigma towards noise: s sigma / (1 + (s - 1) sigma), as schedulers and trainers do (arXiv:2403.03206).

Flux takes s = exp(mu) with mu linear in the number of image tokens: 0.5 at 256 (a 256 x 256 picture), 1.15 at 4,096
(1024 x 1024), and on beyond both, as ``calculate_shift`` of diffusers and ``flux_shift`` of sd-scripts.
"""

import numpy as np
from jaxtyping import Float64, Integer

FLUX_TOKENS, FLUX_MU = (256, 4096), (0.5, 1.15)

Factor = Float64[np.ndarray, "*#shape"]  # s: one number, or one for each sample


def shifted(sigma: Float64[np.ndarray, "*shape"], s: Factor) -> Float64[np.ndarray, "*shape"]:
    """sigma after the shift; s > 1 moves it towards noise. 0 and 1 stay."""
    return s * sigma / (s * sigma + (1 - sigma))


def unshifted(sigma: Float64[np.ndarray, "*shape"], s: Factor) -> Float64[np.ndarray, "*shape"]:
    """sigma before the shift."""
    return sigma / (sigma + s * (1 - sigma))


def flux_factor(tokens: Integer[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
    """s of Flux for images of ``tokens`` transformer tokens."""
    slope = (FLUX_MU[1] - FLUX_MU[0]) / (FLUX_TOKENS[1] - FLUX_TOKENS[0])
    return np.exp(FLUX_MU[0] + slope * (tokens - FLUX_TOKENS[0]))
