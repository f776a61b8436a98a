"""The bootstrap against literal resampling, and simultaneous bands against known curves."""

import numpy as np
import pytest
from scipy import stats

from analysis.base import bootstrap


def test_resampled_u_equals_a_literal_resample_without_same_image_pairs() -> None:
    generator = np.random.default_rng(0)
    n = 7
    half = generator.standard_normal((2, n, n))
    gram = half + half.swapaxes(-1, -2)
    weights = bootstrap.multinomial_weights(generator, 20, n)
    assert (weights.sum(-1) == n).all()
    got = bootstrap.resampled_u(gram, weights)
    for resample, weight in enumerate(weights):
        drawn = np.repeat(np.arange(n), weight.astype(int))
        for cell in range(2):
            pairs = [gram[cell, i, j] for a, i in enumerate(drawn) for b, j in enumerate(drawn) if a != b and i != j]
            assert got[cell, resample] == pytest.approx(np.mean(pairs))


def test_the_plain_bootstrap_would_put_the_dropped_pairs_back() -> None:
    generator = np.random.default_rng(1)
    samples = generator.standard_normal((12, 50))
    gram = samples @ samples.T
    weights = bootstrap.multinomial_weights(generator, 400, 12)
    plain = ((weights @ gram) * weights).sum(-1) / 144
    assert abs(bootstrap.resampled_u(gram, weights).mean()) < 2.0 < plain.mean()


def test_multiplied_has_the_jackknife_variance() -> None:
    generator = np.random.default_rng(2)
    deviations = generator.standard_normal((3, 4, 5))
    out = bootstrap.multiplied(deviations, generator.standard_normal((20000, 4, 5)))
    assert out.var(-1) == pytest.approx((deviations**2).sum((-2, -1)), rel=0.05)


def test_simultaneous_quantile_of_independent_points_is_sidak_and_of_equal_points_is_single() -> None:
    generator = np.random.default_rng(3)
    independent = generator.standard_normal((6, 1, 200000))
    sidak = stats.norm.ppf(0.5 + 0.5 * 0.95 ** (1 / 6))
    assert bootstrap.simultaneous_normal_quantile(independent, 0.95) == pytest.approx(sidak, abs=0.02)
    equal = np.repeat(independent[:1], 6, axis=0)
    single = stats.norm.ppf(0.975)
    assert bootstrap.simultaneous_normal_quantile(equal, 0.95) == pytest.approx(single, abs=0.02)
    with_gap = np.concatenate([independent, np.full_like(equal[:1], np.nan)])
    assert bootstrap.simultaneous_normal_quantile(with_gap, 0.95) == pytest.approx(sidak, abs=0.02)
    assert np.isnan(bootstrap.simultaneous_normal_quantile(np.full_like(equal, np.nan), 0.95)).all()


def test_student_from_normal_keeps_the_tail() -> None:
    t = bootstrap.student_from_normal(np.array(1.96), np.array(7.0))
    assert stats.t.sf(t, 7) == pytest.approx(stats.norm.sf(1.96))


def test_every_resample_of_few_units_holds_a_pair() -> None:
    weights = bootstrap.multinomial_weights(np.random.default_rng(0), 2000, 2)
    assert (weights == 1.0).all()
    gram = np.array([[5.0, 3.0], [3.0, 7.0]])
    assert bootstrap.resampled_u(gram, weights) == pytest.approx(3.0)
