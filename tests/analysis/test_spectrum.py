"""Traces of a covariance from a Gram matrix, and the spectrum of a store."""

import numpy as np
import pytest

from analysis import synthetic
from analysis.base import spectrum
from analysis.errors import UsageError
from analysis.synthetic.from_store import noise_reduced


def test_traces_are_unbiased_with_more_parameters_than_images() -> None:
    values = synthetic.power_law(1.0, 60)
    samples = 3.0 + np.random.default_rng(0).standard_normal((20000, 6, 60)) * np.sqrt(values)
    trace, square = spectrum.traces(samples @ samples.swapaxes(-1, -2))
    for got, truth in ((trace, 1.0), (square, (values**2).sum())):
        assert got.mean() == pytest.approx(truth, abs=5 * got.std() / np.sqrt(len(got)))


def test_centred_gram_is_that_of_centred_vectors() -> None:
    samples = np.random.default_rng(0).standard_normal((5, 7))
    centred = samples - samples.mean(0)
    assert spectrum.centred(samples @ samples.T) == pytest.approx(centred @ centred.T)


def test_typical_eigenvalue_is_the_variance_along_a_noise_direction() -> None:
    assert spectrum.typical_eigenvalue(np.ones((1, 4, 4)))[0] == 0.0
    samples = np.random.default_rng(1).standard_normal((1, 1000, 100)) * np.sqrt(synthetic.power_law(1.0, 100))
    values = synthetic.power_law(1.0, 100)
    assert spectrum.typical_eigenvalue(samples @ samples.swapaxes(1, 2))[0] == pytest.approx((values**2).sum(), rel=0.1)


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_spectrum_of_a_store_is_near_the_planted_one(exponent: float) -> None:
    planted = synthetic.power_law(exponent, 96)
    world = synthetic.Planted(planted, noise_scale=5.0)
    store = synthetic.store(images=60, arms=("native",), sigmas=(0.5,), blocks=("a",), draws=2, world=world)
    found = synthetic.spectrum(store)
    assert found.shape == (96,)
    assert found.sum() == pytest.approx(1.0)
    assert (np.diff(found) <= 0).all()
    assert found[:3] == pytest.approx(planted[:3], rel=0.35)


def test_spectrum_needs_a_done_cell_and_few_images() -> None:
    store = synthetic.store(images=4, arms=("native",), sigmas=(0.5,), blocks=("a",))
    with pytest.raises(UsageError, match="not a done cell"):
        synthetic.spectrum(store, sigma=0.7)
    store["done"][:] = False
    with pytest.raises(UsageError, match="no cell"):
        synthetic.spectrum(store)
    with pytest.raises(UsageError, match="needs between 4 and 2 images"):
        noise_reduced(np.eye(4), 3)
