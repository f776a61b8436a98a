"""How a training run chooses noise levels: distributions of sigma, written as text.

uniform                     sigma uniform on (0, 1]
sigmoid:1.0                 sigmoid(scale x standard normal)
logit-normal:0,1            sigmoid(normal of this mean and standard deviation)
mode:1.29                   more in the middle, never nothing at the ends (arXiv:2403.03206, Eq. 20)
cosmap                      the cosine schedule's signal-to-noise ratios (arXiv:2403.03206, Eq. 21)
shift:3                     s sigma / (1 + (s - 1) sigma) of a uniform sigma
flux                        the same, s from the number of image tokens
sigmoid:1+shift:3@0.1:0.9   any of the first five, shifted, and only 0.1 < sigma <= 0.9 of the result

sigma = 1 is pure noise, as t in the paper. docs/method.md, section 7, has every formula.

    sampler = parse("sigmoid:1+shift:3")
    sampler.cumulative(np.array([0.5]))    # the share of all drawn sigma at or below 0.5
"""

from analysis.sigma_samplers.distribution import Distribution
from analysis.sigma_samplers.grammar import parse
from analysis.sigma_samplers.sampler import SMALLEST_SIGMA, SigmaSampler

__all__ = ["SMALLEST_SIGMA", "Distribution", "SigmaSampler", "parse"]
