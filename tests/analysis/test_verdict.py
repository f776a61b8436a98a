"""Verdicts agree with their intervals, keep their gate, and follow each rule's own question."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import estimate, moments, verdict
from analysis.base.fieller import Growth
from analysis.base.jackknife import Jackknifed, variance
from analysis.synthetic import Planted, gram_arrays, power_law, sample


def measured(seed: int, rho: float, *, images: int = 8, draws: int = 4, noise: float = 2.0) -> moments.Moments:
    """Moments of 20 repeats of one world, for the population of images."""
    world = Planted(power_law(1.0, 20), noise_scale=noise, difference=0.2, relative_bias=rho)
    drawn = sample(world, np.random.default_rng(seed), repeats=20, images=images, draws=draws)
    image, draw, _ = gram_arrays(drawn.gradients)
    return moments.images(image, draw, baseline=0, arms=[1])


@given(seed=st.integers(0, 2**32 - 1), rho=st.floats(0.0, 0.6), margin=st.floats(0.02, 0.8))
def test_relative_verdict_agrees_with_the_interval(seed: int, rho: float, margin: float) -> None:
    part = measured(seed, rho)
    decided = verdict.decide(verdict.relative(part, margin), part.baseline)
    bias = estimate.relative_bias_squared(part)
    resolved = ~np.isnan(bias.upper)
    away = np.minimum(np.abs(bias.upper - margin**2), np.abs(bias.lower - margin**2)) > 1e-9
    assert ((decided.verdict == verdict.SAFE) == (bias.upper < margin**2))[resolved & away].all()
    assert ((decided.verdict == verdict.HARMFUL) == (bias.lower > margin**2))[resolved & away].all()
    assert ((decided.verdict == verdict.SAFE) == (decided.p_safe < 0.025)).all()


def test_the_variance_is_taken_as_at_the_margin() -> None:
    part = measured(0, 0.1)
    question = verdict.relative(part, 0.3)
    decided = verdict.decide(question, part.baseline)
    plain = variance(decided.contrast)
    below = np.maximum(0.09 * part.baseline.value - part.bias.value, 0.0)
    above = np.maximum(part.bias.value / 0.09 - part.baseline.value, 0.0)
    # V + 4 lambda_delta (m^2 U00 - U)+ / n and V + 4 m^4 lambda_0 (U / m^2 - U00)+ / n, written out.
    assert decided.variance_safe == pytest.approx(plain + part.bias_curvature * below)
    assert decided.variance_harmful == pytest.approx(plain + 0.09**2 * part.baseline_curvature * above)


def test_nothing_is_said_without_a_resolved_baseline() -> None:
    part = measured(1, 0.0)
    weak = Jackknifed(0.0 * part.baseline.value, part.baseline.replicates)
    decided = verdict.decide(verdict.relative(part, 0.3), weak)
    assert (decided.verdict == verdict.UNRESOLVED).all()


def test_each_rule_finds_what_is_plainly_safe_and_plainly_harmful() -> None:
    small, large = measured(2, 0.0, images=32, noise=0.2), measured(2, 0.8, images=32, noise=0.2)
    margins = {"relative": 0.3, "angle": 0.1, "budget": 10.0}
    for rule, margin in margins.items():
        safe = verdict.decide(verdict.RULES[rule](small, margin), small.baseline).verdict
        harmful = verdict.decide(verdict.RULES[rule](large, margin), large.baseline).verdict
        assert (safe == verdict.SAFE).all(), rule
        assert (harmful == verdict.HARMFUL).all(), rule


def test_gap_is_measured_from_its_control() -> None:
    world = Planted(power_law(1.0, 20), noise_scale=0.2, difference=0.2)
    drawn = sample(world, np.random.default_rng(0), repeats=5, images=32, draws=4, relative_biases=(0.7, 0.7, 0.0))
    image, draw, _ = gram_arrays(drawn.gradients)
    part = moments.images(image, draw, baseline=0, arms=[1, 2, 3])
    from_equal = verdict.decide(verdict.gap(part, 0.2, control=1), part.baseline).verdict
    from_nothing = verdict.decide(verdict.gap(part, 0.2, control=2), part.baseline).verdict
    assert (from_equal[:, :2] == verdict.SAFE).all()
    assert (from_nothing[:, :2] == verdict.HARMFUL).all()


def test_an_undefined_question_is_unresolved() -> None:
    nothing = Jackknifed(np.full(1, np.nan), np.full((1, 1, 4), np.nan))
    some = Jackknifed(np.ones(1), np.ones((1, 1, 4)) + 0.01 * np.arange(4.0))
    decided = verdict.decide(verdict.Question(nothing, some, 0.1, Growth()), some)
    assert decided.verdict.tolist() == [verdict.UNRESOLVED]
    assert np.isnan(decided.p_safe).all()
