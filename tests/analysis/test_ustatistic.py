"""U-statistics and their delete-one replicates against double loops and literal deletion."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.base import jackknife, ustatistic
from analysis.base.jackknife import Jackknifed
from analysis.synthetic import gram_arrays

SEEDS = st.integers(0, 2**32 - 1)


def double_loop(gram: np.ndarray) -> float:
    n = len(gram)
    pairs = [gram[i, j] for i in range(n) for j in range(n) if i != j]
    return sum(pairs) / len(pairs)


def corpus_loop(first: np.ndarray, second: np.ndarray) -> float:
    """The corpus estimator from two ragged lists of gradients, image by image, draw by draw."""
    n = len(first)
    total = 0.0
    for i in range(n):
        for j in range(n):
            if i != j:
                total += first[i].mean(0) @ second[j].mean(0)
        draws = len(first[i])
        pairs = [first[i][d] @ second[i][e] for d in range(draws) for e in range(draws) if d != e]
        total += sum(pairs) / len(pairs)
    return total / n**2


@given(seed=SEEDS, n=st.integers(3, 7))
def test_over_images_equals_the_double_loop_and_literal_deletion(seed: int, n: int) -> None:
    gram = np.random.default_rng(seed).standard_normal((2, n, n))
    figure = ustatistic.over_images(gram)
    for cell in range(2):
        assert figure.value[cell] == pytest.approx(double_loop(gram[cell]), rel=1e-12, abs=1e-14)
        for left_out in range(n):
            kept = np.delete(np.delete(gram[cell], left_out, 0), left_out, 1)
            assert figure.replicates[cell, 0, left_out] == pytest.approx(double_loop(kept), rel=1e-11, abs=1e-13)


@given(seed=SEEDS, n=st.integers(2, 4), draws=st.integers(3, 5))
def test_over_draws_equals_the_loop_and_literal_deletion(seed: int, n: int, draws: int) -> None:
    gradients = np.random.default_rng(seed).standard_normal((2, n, draws, 3)) + 0.5
    image, draw, cross = gram_arrays(gradients[None])
    # The pair (arm 0, arm 1), symmetrised as moments.corpus does it.
    figure = ustatistic.over_draws(
        0.5 * (image[:, 0, :, 1] + image[:, 1, :, 0]),
        0.5 * (draw[:, :, 0, :, 1] + draw[:, :, 1, :, 0]),
        0.5 * (cross[:, :, 0, :, 1] + cross[:, :, 1, :, 0]),
    )
    first, second = ([list(images) for images in arm] for arm in gradients)
    ragged = [np.array(images) for images in first], [np.array(images) for images in second]
    assert figure.value[0] == pytest.approx(corpus_loop(*ragged), rel=1e-11, abs=1e-13)
    for i in range(n):
        for d in range(draws):
            kept = [[np.delete(x, d, 0) if k == i else x for k, x in enumerate(arm)] for arm in ragged]
            assert figure.replicates[0, i, d] == pytest.approx(corpus_loop(*kept), rel=1e-10, abs=1e-12)


@given(seed=SEEDS)
def test_same_image_and_squares_equal_literal_deletion(seed: int) -> None:
    n, draws = 3, 4
    gradients = np.random.default_rng(seed).standard_normal((1, n, draws, 2)) + 1.0
    draw = gram_arrays(gradients[None])[1][:, :, 0, :, 0]
    q, squares = ustatistic.mean_same_image_over_draws(draw), ustatistic.mean_square_over_draws(draw)
    samples = list(gradients[0])
    assert q.value[0] == pytest.approx(np.mean([double_loop(x @ x.T) for x in samples]))
    assert squares.value[0] == pytest.approx(np.mean([(x**2).sum(1).mean() for x in samples]))
    for i in range(n):
        for d in range(draws):
            kept = [np.delete(x, d, 0) if k == i else x for k, x in enumerate(samples)]
            assert q.replicates[0, i, d] == pytest.approx(np.mean([double_loop(x @ x.T) for x in kept]))
            assert squares.replicates[0, i, d] == pytest.approx(np.mean([(x**2).sum(1).mean() for x in kept]))


@given(seed=SEEDS, scale=st.floats(1e-3, 1e3))
def test_over_images_ignores_order_and_follows_scale(seed: int, scale: float) -> None:
    generator = np.random.default_rng(seed)
    gram = generator.standard_normal((1, 6, 6))
    order = generator.permutation(6)
    figure, permuted = ustatistic.over_images(gram), ustatistic.over_images(scale * gram[:, order][:, :, order])
    assert permuted.value == pytest.approx(scale * figure.value, rel=1e-9, abs=1e-12 * scale)
    assert permuted.replicates[0, 0] == pytest.approx(
        scale * figure.replicates[0, 0, order], rel=1e-9, abs=1e-12 * scale
    )
    assert ustatistic.over_images(gram.swapaxes(1, 2)).value == pytest.approx(figure.value)


def test_the_estimators_are_unbiased_where_plain_means_are_not() -> None:
    generator = np.random.default_rng(3)
    mean = np.array([0.3, -0.2, 0.1])
    samples = mean + generator.standard_normal((20000, 1, 5, 4, 3))
    image, draw, cross = gram_arrays(samples)
    corpus = ustatistic.over_draws(image[:, 0, :, 0], draw[:, :, 0, :, 0], cross[:, :, 0, :, 0]).value
    images = ustatistic.over_images(image[:, 0, :, 0]).value
    for values in (corpus, images):
        assert values.mean() == pytest.approx(mean @ mean, abs=5 * values.std() / np.sqrt(len(values)))
    plain = image[:, 0, :, 0].mean((-2, -1))
    assert plain.mean() > mean @ mean + 0.1


def test_jackknife_of_a_mean_is_the_textbook_variance() -> None:
    per_image = np.random.default_rng(0).standard_normal((3, 9))
    figure = ustatistic.mean_over_images(per_image)
    assert jackknife.variance(figure) == pytest.approx(per_image.var(-1, ddof=1) / 9)
    assert jackknife.degrees_of_freedom(figure) == pytest.approx(np.full(3, 8.0))


def test_stratified_jackknife_of_a_mean_is_the_stratified_variance() -> None:
    draws = np.random.default_rng(0).standard_normal((4, 6)) * np.array([[1.0], [2.0], [3.0], [4.0]])
    others = (draws.mean(1, keepdims=True) - draws) / 5 / 4
    figure = Jackknifed(draws.mean(keepdims=True)[0], (draws.mean() + others)[None])
    per_stratum = draws.var(1, ddof=1) / 6 / 16
    assert jackknife.variance(figure) == pytest.approx(per_stratum.sum())
    satterthwaite = per_stratum.sum() ** 2 / (per_stratum**2 / 5).sum()
    assert jackknife.degrees_of_freedom(figure) == pytest.approx(satterthwaite)


def test_debiased_squares_a_mean_without_its_variance() -> None:
    per_image = np.random.default_rng(1).standard_normal((20000, 5)) + 0.2
    mean = ustatistic.mean_over_images(per_image)
    square = jackknife.debiased(jackknife.derive(np.square, mean))
    assert square.value.mean() == pytest.approx(0.04, abs=5 * square.value.std() / np.sqrt(20000))
    assert square.value == pytest.approx(mean.value**2 - per_image.var(-1, ddof=1) / 5)
