"""Simultaneous bands hold for the whole grid at once, in both populations."""

import numpy as np
import pytest

from analysis import moments, simultaneous
from analysis.synthetic import Planted, gram_arrays, power_law, sample

REPEATS, POINTS, RHO = 300, 6, 0.2


@pytest.mark.parametrize(("population", "images", "draws"), [("images", 8, 1), ("images", 24, 1), ("corpus", 6, 4)])
def test_the_whole_curve_lies_in_its_band(population: str, images: int, draws: int) -> None:
    generator = np.random.default_rng(0)
    world = Planted(power_law(2.0, 24), noise_scale=0.2, difference=0.2, relative_bias=RHO, direction="leading")
    curve = simultaneous.Curve(population)
    for _ in range(POINTS):
        fixed = population == "corpus"
        drawn = sample(world, generator, repeats=REPEATS, images=images, draws=draws, fixed_corpus=fixed)
        image, draw, cross = gram_arrays(drawn.gradients)
        if fixed:
            curve.add(moments.corpus(image, draw, cross, baseline=0, arms=[1]))
        else:
            curve.add(moments.images(image, draw, baseline=0, arms=[1]))
    lower, upper = curve.bands()
    unresolved = np.isnan(lower)
    held = (unresolved | ((lower <= RHO**2) & (upper >= RHO**2))).all(0).mean()
    # Three standard errors of 95 % over the repeats below it.
    assert held > 0.95 - 3 * np.sqrt(0.95 * 0.05 / REPEATS)
    assert unresolved.mean() < 0.1


def test_a_curve_may_have_fewer_images_at_some_points() -> None:
    """Sweeps that stop by what they see leave that; eight images of a resample of 16 may be one, or none."""
    generator = np.random.default_rng(1)
    world = Planted(power_law(1.0, 24), noise_scale=0.2, difference=0.2, relative_bias=RHO)
    curve, parts = simultaneous.Curve("images"), []
    for images in (16, 8, 16):
        image, draw, _ = gram_arrays(sample(world, generator, repeats=5, images=images).gradients)
        parts.append(moments.images(image, draw, baseline=0, arms=[1]))
        curve.add(parts[-1])
    lower, upper = curve.bands()
    assert np.isfinite(lower).any(axis=(1, 2)).all()
    assert (upper - lower)[1].mean() > (upper - lower)[[0, 2]].mean()
