"""Traces of a covariance from a Gram matrix, and the spectrum of a store."""

import numpy as np
import pytest

from analysis import synthetic
from analysis.base import spectrum
from analysis.errors import UsageError
from analysis.synthetic.from_store import noise_reduced


@pytest.mark.parametrize("vectors", [3, 4, 6])
def test_traces_are_unbiased_with_more_parameters_than_images(vectors: int) -> None:
    values = synthetic.power_law(1.0, 60)
    samples = 3.0 + np.random.default_rng(0).standard_normal((20000, vectors, 60)) * np.sqrt(values)
    traces = spectrum.traces(samples @ samples.swapaxes(-1, -2))
    for power, got in enumerate(traces, 1):
        truth = (values**power).sum() if (vectors, power) != (3, 3) else 0.0  # three vectors do not tell the cube
        assert got.mean() == pytest.approx(truth, abs=5 * got.std() / np.sqrt(len(got)))


def test_centred_gram_is_that_of_centred_vectors() -> None:
    samples = np.random.default_rng(0).standard_normal((5, 7))
    centred = samples - samples.mean(0)
    assert spectrum.centred(samples @ samples.T) == pytest.approx(centred @ centred.T)


def test_eigenvalue_along_bias_is_that_of_noise_or_of_a_direction_that_stands_out() -> None:
    """lambda = max(tr Sigma^2 / tr Sigma, 0.5 tr Sigma^3 / tr Sigma^2), written out from the true eigenvalues."""
    assert spectrum.eigenvalue_along_bias(*spectrum.traces(np.ones((1, 4, 4))))[0] == 0.0
    outstanding = np.ones(600)
    outstanding[0] = 50.0
    drawn = []
    for values in (synthetic.power_law(1.0, 100), synthetic.power_law(2.0, 100), np.ones(600), outstanding):
        samples = np.random.default_rng(1).standard_normal((1, 1000, len(values))) * np.sqrt(values)
        found = spectrum.eigenvalue_along_bias(*spectrum.traces(samples @ samples.swapaxes(1, 2)))[0]
        typical, highest = (values**2).sum() / values.sum(), (values**3).sum() / (values**2).sum()
        assert found == pytest.approx(max(typical, 0.5 * highest), rel=0.1)
        drawn.append(typical > 0.5 * highest)
    assert drawn == [False, True, True, False]


def test_pair_variance_is_the_variance_of_noise_alone_twice() -> None:
    samples = np.random.default_rng(0).standard_normal((4000, 8, 30))
    gram = samples @ samples.swapaxes(-1, -2)
    truth = 2.0 * 30 / (8 * 7)
    assert spectrum.pair_variance(gram).mean() == pytest.approx(2.0 * truth, rel=0.3)


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
