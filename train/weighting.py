"""Weights of a sample's loss by its noise level, written as text: none, sigma-sqrt, min-snr:5.

A weight multiplies the velocity loss of Eq. 3, so what other parametrisations call a weight is translated here. As
x0 = x_sigma - sigma v and noise = x_sigma + (1 - sigma) v (Eq. 1 and 2), an error e of the velocity is an error
-sigma e of the clean latent and (1 - sigma) e of the noise.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np
from jaxtyping import Float32, Float64

from analysis.errors import UsageError

Function = Callable[[np.ndarray], np.ndarray]

KNOWN = "none, sigma-sqrt, min-snr:gamma"
GAMMA = 5.0  # of min-snr, the paper's choice


@dataclass(frozen=True)
class Weighting:
    """``text`` as written, and the weight as a function of sigma in float64."""

    text: str
    function: Function

    def weights(self, sigmas: Float64[np.ndarray, " samples"]) -> Float32[np.ndarray, " samples"]:
        """One weight a sample. sigmas: as drawn, before an arm's own shift, so that all arms weigh alike."""
        weights = self.function(sigmas)
        if (weights > np.finfo(np.float32).max).any():
            raise UsageError(
                f"weighting {self.text}: sigma {sigmas.min():.1e} would weigh {weights.max():.1e}, beyond float32; "
                "cut the sampler's range, such as @0.001"
            )
        return weights.astype(np.float32)


def none(sigmas: Float64[np.ndarray, " samples"]) -> Float64[np.ndarray, " samples"]:
    """1: the velocity loss as it is."""
    return np.ones(sigmas.shape)


def sigma_sqrt(sigmas: Float64[np.ndarray, " samples"]) -> Float64[np.ndarray, " samples"]:
    """sigma^-2, Eq. 20, on the velocity loss, as the Flux scripts of diffusers have it. It has no bound at small sigma.

    Those of SD3 put it on the loss of the clean latent by default (``precondition_outputs``), where it is ``none``.
    """
    return sigmas**-2.0


def min_snr(gamma: float) -> Function:
    """sigma^2 min(SNR, gamma) with SNR = ((1 - sigma) / sigma)^2, Eq. 21.

    Min-SNR (arXiv:2303.09556) weighs the squared error of the clean latent by min(SNR, gamma). That error is sigma^2
    times the velocity's, hence min((1 - sigma)^2, gamma sigma^2): largest at sigma = 1 / (1 + sqrt gamma), and 0 at 1.
    The paper's min(SNR, gamma) / SNR for predicted noise is the same loss; so is its / (SNR + 1) for the v of a
    variance-preserving process, whose v is not this velocity: neither is a weight for Eq. 3.
    """

    def weight(sigmas: Float64[np.ndarray, " samples"]) -> Float64[np.ndarray, " samples"]:
        return np.minimum((1 - sigmas) ** 2, gamma * sigmas**2)  # no division, so sigma near 0 is no trouble

    return weight


def parse(text: str) -> Weighting:
    """The weighting that ``text`` describes; a UsageError says what was given and what is allowed."""
    name, colon, argument = text.strip().partition(":")
    if name in ("none", "sigma-sqrt") and not colon:
        return Weighting(name, none if name == "none" else sigma_sqrt)
    if name != "min-snr":
        raise UsageError(f"weighting '{text}': known: {KNOWN}")
    try:
        gamma = float(argument) if colon else GAMMA
    except ValueError:
        gamma = 0.0
    if not (isfinite(gamma) and gamma > 0):
        raise UsageError(f"weighting '{text}': gamma '{argument}'; it takes a finite number above 0, such as min-snr:5")
    return Weighting(text.strip(), min_snr(gamma))
