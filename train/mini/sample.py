"""Pictures out of the mini model, so that a person can see what it has learned."""

from itertools import pairwise

import numpy as np
import torch
from diffusers import FluxTransformer2DModel
from PIL import Image

from train.crn import normal
from train.families import unconditional
from train.families.flux import Flux
from train.objective import StepInput

STEPS = 50  # of Euler's method, sigma evenly from 1 to 0


@torch.no_grad()
def sampled(model: FluxTransformer2DModel, count: int, side: int, *, seed: int) -> np.ndarray:
    """``count`` pictures, uint8 [count, side, side, 3], from noise that depends on ``seed`` alone."""
    family = Flux(model.config, channels=3)
    x = torch.stack([normal((3, side, side), seed=seed, purpose="mini sample", index=(i,)) for i in range(count)])
    condition = unconditional(family, count)
    levels = torch.linspace(1, 0, STEPS + 1)
    for here, there in pairwise(levels):
        step = StepInput(x, here.expand(count), x, condition)
        x = x + (there - here) * family.velocity(model(**family.arguments(step)), x.shape)
    pixels = ((x / 2 + 1) * 127.5).round().clamp(0, 255)
    return pixels.movedim(1, -1).to(torch.uint8).numpy()


def sheet(rows: list[np.ndarray], gap: int = 2) -> Image.Image:
    """Rows of pictures, each uint8 [count, side, side, 3], as one picture."""
    count, side = rows[0].shape[:2]
    page = Image.new("RGB", (count * (side + gap) - gap, len(rows) * (side + gap) - gap), "white")
    for r, row in enumerate(rows):
        for c, picture in enumerate(row):
            page.paste(Image.fromarray(picture), (c * (side + gap), r * (side + gap)))
    return page
