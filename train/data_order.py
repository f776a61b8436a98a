"""Which samples a training step takes: images in a new random order every epoch, each with a noise draw of its own.

A pure function of (seed, step), so a resumed run needs no generator state (docs/method.md, section 2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from train.crn import generator
from train.plan import Sample

FIRST_DRAW = -1  # and downward: a probe counts its draws from 0, and must not see noise its adapter was trained on


@dataclass(frozen=True)
class DataOrder:
    """``names`` of the images; ``samples``: how many a step takes."""

    names: tuple[str, ...]
    samples: int
    seed: int

    def of(self, step: int) -> list[Sample]:
        """The samples of ``step``, counted from 0."""
        numbers = range(step * self.samples, (step + 1) * self.samples)
        return [Sample(self.image(number), FIRST_DRAW - number) for number in numbers]

    def image(self, number: int) -> str:
        """The image of the run's sample ``number``: each image once an epoch."""
        epoch, place = divmod(number, len(self.names))
        return self.names[permutation(self.seed, epoch, len(self.names))[place]]


@lru_cache(maxsize=4)
def permutation(seed: int, epoch: int, size: int) -> Sequence[int]:
    """The order of an epoch."""
    return torch.randperm(size, generator=generator(seed, "data order", (epoch,))).tolist()
