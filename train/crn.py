"""Common random numbers: every draw is a pure function of (seed, purpose, index).

No draw reads or moves global random state, so arms share their draws, a resumed run needs no
generator state, and neither order nor sharding changes a number (docs/method.md, section 2).

    noise = normal((3, 64, 64), seed=0, purpose="noise", index=("coffee_2", 1))
"""

import hashlib
import json
from collections.abc import Sequence

import torch

Index = Sequence[int | str]


def generator(seed: int, purpose: str, index: Index = ()) -> torch.Generator:
    """CPU generator of the stream named by (seed, purpose, index).

    The three are hashed, so streams of neighbouring seeds or indices are unrelated.
    """
    name = json.dumps([seed, purpose, *index]).encode()
    return torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1)


def normal(shape: Sequence[int], *, seed: int, purpose: str, index: Index = ()) -> torch.Tensor:
    """Standard normal float32 tensor of ``shape``, on the CPU."""
    return torch.randn(tuple(shape), generator=generator(seed, purpose, index))


def uniform(shape: Sequence[int], *, seed: int, purpose: str, index: Index = ()) -> torch.Tensor:
    """Uniform [0, 1) float64 tensor of ``shape``, on the CPU."""
    return torch.rand(tuple(shape), generator=generator(seed, purpose, index), dtype=torch.float64)
