"""Logit-normal sigma: log(sigma / (1 - sigma)) is normal (arXiv:2403.03206, section 3.1).

A positive mean favours noise, as in the paper. The scripts of diffusers (and sd-scripts' ``sigma`` sampling) look the
number up in a table of timesteps that starts at pure noise, so their ``logit_mean`` is minus this mean.
``sigmoid:scale`` is mean 0 and standard deviation ``scale``: ``sigmoid`` of sd-scripts and musubi-tuner.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy.special import expit, logit, ndtr, ndtri


@dataclass(frozen=True)
class LogitNormal:
    """sigma = sigmoid(mean + std x standard normal)."""

    mean: float
    std: float

    def quantile(self, u: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        return expit(self.mean + self.std * ndtri(u))

    def cumulative(self, sigma: Float64[np.ndarray, "*shape"]) -> Float64[np.ndarray, "*shape"]:
        return ndtr((logit(sigma) - self.mean) / self.std)
