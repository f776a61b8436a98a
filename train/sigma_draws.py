"""Draws the sigma of training steps: functions of (seed, step, sample), the sampler and the native grid alone.

The same u serves every sampler, so runs with different settings see comparable noise levels step by step. The u of a
batch are independent, as in common trainers. Stratified ones would spread every batch over all of (0, 1], and then no
batch of two could lie inside half of it, which a batch-strict window asks for (``train.placement``).

    sampler = parse("sigmoid:1+flux")
    sigmas = draw_sigmas(sampler, seed=0, step=17, samples=4, tokens=np.array([256, 256, 224, 256]))
"""

import numpy as np
from jaxtyping import Float64, Integer

from analysis.sigma_samplers import SigmaSampler
from train.step_uniforms import step_uniforms


def draw_sigmas(
    sampler: SigmaSampler, *, seed: int, step: int, samples: int, tokens: Integer[np.ndarray, " samples"] | None = None
) -> Float64[np.ndarray, " samples"]:
    """sigma of every sample of one optimiser step, in (0, 1].

    samples: batch x accumulation, so accumulating changes no sigma. tokens: image tokens of each sample's native grid,
    for ``flux``.
    """
    of_steps = None if tokens is None else tokens[None]
    return draw_sigma_table(sampler, seed=seed, steps=range(step, step + 1), samples=samples, tokens=of_steps)[0]


def draw_sigma_table(
    sampler: SigmaSampler,
    *,
    seed: int,
    steps: range,
    samples: int,
    tokens: Integer[np.ndarray, "steps samples"] | None = None,
) -> Float64[np.ndarray, "steps samples"]:
    """The same for consecutive ``steps`` at once: row t is ``draw_sigmas`` of step t, to the bit."""
    u = 1.0 - step_uniforms(steps, samples, seed=seed, purpose="sigma")  # [0, 1) to (0, 1], exactly
    return sampler.quantile(u, tokens)
