"""The forecast of images needed, against its own statistic and against more images."""

import numpy as np
import pytest
from scipy import stats

from analysis import forecast
from analysis.safety import assess
from analysis.synthetic import Planted, power_law, store


def test_units_needed_is_the_first_number_that_settles() -> None:
    value, spread, pairs = np.array([-0.4]), np.array([0.09]), np.array([0.05])
    needed = forecast.units_needed(value, spread, pairs, np.array([9.0]), 10).item()

    def settled(n: float) -> bool:
        variance = (0.09 - 0.05) * 10 / n + 0.05 * (10 / n) ** 2
        return stats.t.isf(0.025, n - 1) * np.sqrt(variance) < 0.4

    assert settled(needed)
    assert not settled(needed - 1)


def test_no_effect_is_never_settled() -> None:
    assert np.isnan(forecast.units_needed(np.zeros(1), np.ones(1), np.zeros(1), np.full(1, 9.0), 10)).all()


def test_pair_variance_is_the_variance_of_noise_alone_twice() -> None:
    samples = np.random.default_rng(0).standard_normal((4000, 8, 30))
    gram = samples @ samples.swapaxes(-1, -2)
    truth = 2.0 * 30 / (8 * 7)
    assert forecast.pair_variance(gram).mean() == pytest.approx(2.0 * truth, rel=0.3)


def test_the_forecast_number_of_images_settles_about_half_of_the_verdicts() -> None:
    world = Planted(power_law(1.0, 40), noise_scale=2.0, difference=0.3)
    settings = {"arms": ("native", "demote:56"), "sigmas": tuple(np.linspace(0.1, 0.9, 24)), "blocks": ("a",)}
    few = assess(store(images=8, draws=2, world=world, **settings), margin=0.2)
    unresolved = few["images_needed"].sel(block="total").values
    typical = int(np.nanmedian(unresolved))
    assert 8 < typical < 100
    many = assess(store(images=typical, draws=2, world=world, seed=1, **settings), margin=0.2)
    share = (many["verdict"].sel(block="total") == "safe").values.mean()
    assert 0.35 < share < 0.95
