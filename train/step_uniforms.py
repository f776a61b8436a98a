"""Uniform numbers of training steps, thousands of steps at a time.

One generator a step is too slow to look ahead over a whole run. So a stream of ``train.crn`` holds the
numbers of 1,024 steps: sample i of step t is number t mod 1024 of the stream (seed, purpose, t // 1024, i).
It is a function of (seed, purpose, t, i) alone: neither the batch size nor the steps asked for change it.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float64

from train.crn import uniform

STEPS = 1024  # in one stream


def step_uniforms(steps: range, samples: int, *, seed: int, purpose: str) -> Float64[np.ndarray, "steps samples"]:
    """Uniform [0, 1) numbers of consecutive ``steps``, one for each of ``samples``."""
    if not steps or steps.step != 1 or steps.start < 0:
        raise ValueError(f"{steps}: it takes at least one step, consecutive ones from 0 on")
    streams = range(steps.start // STEPS, steps[-1] // STEPS + 1)
    table = np.stack([np.concatenate([_stream(seed, purpose, at, i) for at in streams]) for i in range(samples)], 1)
    return table[steps.start - streams.start * STEPS :][: len(steps)]


@lru_cache(maxsize=512)  # 4 MB; a run asks for the same stream 1,024 times
def _stream(seed: int, purpose: str, at: int, sample: int) -> Float64[np.ndarray, " steps"]:
    numbers = uniform((STEPS,), seed=seed, purpose=purpose, index=(at, sample)).numpy()
    numbers.flags.writeable = False
    return numbers
