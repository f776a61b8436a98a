"""Policies against dense gradients mixed by hand, and worlds in which biases cancel across sigma or add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import sigma_samplers, synthetic
from analysis.errors import UsageError
from analysis.policy import evaluate, search
from analysis.policy.answer import Question
from analysis.policy.answering import answered
from analysis.policy.evaluate import assessed
from analysis.policy.folds import fold_means, fold_of_images
from analysis.policy.grammar import Policy, Route, parse
from analysis.policy.material import Material, load
from analysis.policy.shares import shares
from analysis.policy.weights import weights

SIGMAS = (0.125, 0.375, 0.625, 0.875)
ARMS = ("native", "demote:56", "demote:48")
IMAGES, DRAWS, K = 18, 3, 7
TEXT = "demote:48@0.8,demote:56@0.2:0.55"
ASKED = Question("uniform", "seconds", "images", "relative", None, "native", 1)


def shares_of(sampler="uniform", grid=SIGMAS):
    return shares(grid, sigma_samplers.parse(sampler), np.full(3, 256))


@pytest.fixture(scope="module")
def dense():
    """Gradients [block, sigma, arm, image, draw, k] in which every pair of arms and sigma differs."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(2, 1, 1, IMAGES, DRAWS, K))
    mean = rng.normal(size=(2, len(SIGMAS), len(ARMS), 1, 1, K))
    return mean + common + 0.5 * rng.normal(size=(2, len(SIGMAS), len(ARMS), IMAGES, DRAWS, K))


@pytest.fixture(scope="module")
def material(dense):
    fold = fold_of_images(IMAGES)
    unit = np.stack([[fold_means(at.mean(2), fold) for at in block] for block in dense])
    flat = unit.reshape(2, len(SIGMAS) * len(ARMS), -1, K)
    squares = (dense**2).sum(-1).mean(-1)
    of_fold = np.stack([squares[..., fold == f].mean(-1) for f in range(fold.max() + 1)], -1)
    grams = np.einsum("bknc,blmc->bknlm", flat, flat)
    return Material(ARMS, SIGMAS, ("a", "b"), 0, grams, of_fold.reshape(2, flat.shape[1], -1), IMAGES / flat.shape[2])


def by_hand(dense, policy, p):
    """Fold means of the policy's expected gradient, sample by sample: [block][fold] -> vector, uniform sampler."""
    fold, found = fold_of_images(IMAGES), []
    for block in dense:
        found.append([])
        for f in range(fold.max() + 1):
            vector, count = np.zeros(K), 0
            for image in np.flatnonzero(fold == f):
                count += 1
                for s, sigma in enumerate(SIGMAS):
                    for draw in range(DRAWS):
                        for arm, share in zip(range(len(ARMS)), p(policy, sigma), strict=True):
                            vector = vector + share * block[s, arm, image, draw] / DRAWS
            found[-1].append(vector / count)
    return found


def uniform_shares(policy, sigma):
    """Of the cell of ``sigma``, a quarter of all, the share of each arm."""
    found = [0.25, 0.0, 0.0]
    for route in policy.routes:
        inside = max(0.0, min(sigma + 0.125, route.hi) - max(sigma - 0.125, route.lo))
        found[ARMS.index(route.arm)] += inside
        found[0] -= inside
    return found


def mean_of_pairs(vectors, others):
    n = len(vectors)
    return sum(vectors[i] @ others[j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))


def test_moments_are_those_of_dense_gradients_mixed_by_hand(dense, material):
    policy = parse(TEXT, ARMS[1:], SIGMAS)
    w = weights(policy, shares_of(), ARMS)
    part = evaluate.moments(material, w[None], every_block=True)
    treated, native = by_hand(dense, policy, uniform_shares), by_hand(dense, Policy(()), uniform_shares)
    for at, block in enumerate((0, 1)):
        delta = [a - b for a, b in zip(treated[block], native[block], strict=True)]
        assert part.bias.value[at, 0] == pytest.approx(mean_of_pairs(delta, delta))
        assert part.baseline.value[at, 0] == pytest.approx(mean_of_pairs(native[block], native[block]))
        assert part.treated.value[at, 0] == pytest.approx(mean_of_pairs(treated[block], treated[block]))
        assert part.mixed.value[at, 0] == pytest.approx(mean_of_pairs(native[block], treated[block]))
        for left_out in (0, 5):
            kept = [v for place, v in enumerate(delta) if place != left_out]
            assert part.bias.replicates[at, 0, 0, left_out] == pytest.approx(mean_of_pairs(kept, kept))
    # The last row is the sum over blocks, before any division.
    assert part.bias.value[2, 0] == pytest.approx(part.bias.value[:2, 0].sum())


def test_noise_is_that_of_one_sample_whose_sigma_is_drawn_too(dense, material):
    """Law of total covariance, by the plain second moment over all (sigma, arm, image, draw) with their chances."""
    policy = parse(TEXT, ARMS[1:], SIGMAS)
    part = evaluate.moments(material, weights(policy, shares_of(), ARMS)[None], every_block=False)
    second = 0.0
    for s, sigma in enumerate(SIGMAS):
        for arm, share in enumerate(uniform_shares(policy, sigma)):
            for image in range(IMAGES):
                for draw in range(DRAWS):
                    vector = dense[:, s, arm, image, draw].ravel()
                    second += share * (vector @ vector) / (IMAGES * DRAWS)
    expected = second - part.treated.value[0, 0]
    assert part.noise_treated.value[0, 0] == pytest.approx(expected)
    # The spread over sigma is in it: with draws of one sigma alone it is smaller.
    within = sum(0.25 * np.trace(np.cov(dense[:, s, 0].transpose(1, 2, 0, 3).reshape(-1, 2 * K).T)) for s in range(4))
    native = evaluate.moments(material, weights(Policy(()), shares_of(), ARMS)[None], every_block=False)
    assert native.noise_treated.value[0, 0] > 1.2 * within


def test_many_policies_at_once_are_each_alone(material):
    share = shares_of()
    every = [*search.one_route("demote:48", share), *search.two_routes(ARMS[1:], share)]
    stacked = np.stack([weights(policy, share, ARMS) for policy in every])
    together = assessed(material, list(map(str, every)), stacked, every_block=False, rule="relative", margin=0.3)
    assert len(every) == 4 + 2 * 6
    for at in (0, 3, 9, 15):
        alone = assessed(material, ["x"], stacked[at : at + 1], every_block=False, rule="relative", margin=0.3)
        for name in ("relative_bias_squared", "upper", "cosine", "p_safe"):
            assert together[name].values[0, at] == pytest.approx(alone[name].values[0, 0])


@pytest.mark.parametrize(("signs", "truth"), [((1, -1, 1, -1), 0.0), ((1, 1, 1, 1), 0.4)], ids=["cancel", "add up"])
@pytest.mark.parametrize("population", ["images", "corpus"])
def test_biases_that_cancel_across_sigma_and_that_add_up(signs, truth, population):
    """Sigma by sigma both worlds look alike: a bias of 0.4 everywhere. What training sees is 0 or 0.4."""
    data = synthetic.policy_store(
        signed_bias={"demote:56": [0.4 * sign for sign in signs]}, sigmas=SIGMAS, images=24, draws=8,
        noise_scale=0.2, fixed_corpus=population == "corpus",
    )  # fmt: skip
    asked = Question("uniform", "seconds", population, "relative", 0.2, "native", 1)
    row = answered(data, asked, ["demote:56", "demote:56@0.5"]).total.sel(policy=["demote:56", "demote:56@0.5"])
    assert row["lower"].values[0] <= truth**2 <= row["upper"].values[0]
    assert row["verdict"].values[0] == ("safe" if truth == 0 else "harmful")
    assert row["relative_bias_squared"].values[1] == pytest.approx((truth / 2) ** 2, abs=0.01)
    # Sums of figures at single sigma cannot tell the two apart.
    for index in range(len(SIGMAS)):
        one = np.zeros((1, len(SIGMAS), 2))
        one[0, index, 1] = 1.0
        own = evaluate.moments(load(data, population=population), one, every_block=False)
        assert np.sqrt(own.bias.value / own.baseline.value).item() == pytest.approx(0.4, rel=0.1)


def test_single_sigma_weights_are_compared_with_their_own_native(material):
    """A mixture's baseline is the native arm with the weights of the same sigma."""
    w = np.zeros((1, len(SIGMAS), len(ARMS)))
    w[0, 2, 1] = 1.0
    part = evaluate.moments(material, w, every_block=False)
    with pytest.raises(ValueError, match="one sampler"):
        evaluate.moments(material, np.concatenate([w, w[:, ::-1]]), every_block=False)
    k = 2 * len(ARMS)
    gram = material.grams.sum(0)[k, :, k]
    n = len(gram)
    assert part.baseline.value[0, 0] == pytest.approx((gram.sum() - np.trace(gram)) / (n * (n - 1)))


@pytest.mark.parametrize("sampler", ["uniform", "sigmoid:1", "logit-normal:-0.5,0.8", "shift:3", "mode", "cosmap"])
def test_shares_are_those_of_many_draws(sampler):
    share = shares_of(sampler)
    drawn = share.sampler.quantile((np.arange(100_000) + 0.5) / 100_000)
    edges = [0.0, 0.25, 0.5, 0.75, 1.0]
    counted = np.histogram(drawn, edges)[0] / 100_000
    assert share.within(0.0, 1.0) == pytest.approx(counted, abs=2e-5)
    part = ((drawn > 0.3) & (drawn <= 0.6)).mean()
    assert share.within(0.3, 0.6).sum() == pytest.approx(part, abs=2e-5)
    assert share.within(0.3, 0.6)[[0, 3]].tolist() == [0.0, 0.0]


def test_flux_takes_the_tokens_of_the_images():
    share = shares(SIGMAS, sigma_samplers.parse("flux"), np.array([256, 256, 4096, 1024]))
    each = [sigma_samplers.parse("flux").cumulative(np.array([0.5]), np.array([n]))[0] for n in (256, 256, 4096, 1024)]
    assert share.below(0.5) == pytest.approx(np.mean(each))


def test_what_no_cell_holds_is_uncovered_and_sigma_one_is_its_own_cell():
    assert shares_of().uncovered == pytest.approx(0.0)
    assert shares_of(grid=(0.3, 0.5, 0.7)).uncovered == pytest.approx(0.4)
    with_one = shares_of(grid=(0.2, 0.4, 0.6, 1.0))
    assert with_one.within(0.0, 1.0) == pytest.approx([0.2, 0.2, 0.2, 0.0])
    assert with_one.uncovered == pytest.approx(0.4)
    atom = shares_of("sigmoid:100", grid=(0.2, 0.4, 0.6, 1.0)).within(0.0, 1.0)[-1]
    assert 0.3 < atom < 0.5
    near = shares_of("sigmoid:100", grid=(0.7, 0.9, 1.0)).within(0.0, 1.0)
    assert near[-1] == pytest.approx(atom)  # and the cell of 0.9, which reaches up to 1, has none of it
    assert near[1] < 0.2


@given(st.lists(st.floats(0.01, 0.999), min_size=2, max_size=9, unique=True), st.floats(0, 0.9), st.floats(0.01, 1))
def test_weights_are_shares_that_sum_to_one(grid, lo, width):
    grid = sorted(grid)
    if min(np.diff(grid)) < 1e-6:
        return
    share = shares(grid, sigma_samplers.parse("uniform"), np.ones(1, int))
    w = weights(Policy((Route("demote:56", lo, min(1.0, lo + width)),)), share, ARMS, samples=2)
    assert w.sum() == pytest.approx(1.0)
    assert (w > -1e-12).all()


def test_a_window_treats_a_step_when_it_holds_all_of_its_samples():
    """By brute force over pairs of uniform sigma."""
    policy = parse("demote:48@0.8,demote:56@0.2:0.55", ARMS[1:], SIGMAS)
    w = weights(policy, shares_of(), ARMS, samples=2).sum(0)
    u = (np.arange(400) + 0.5) / 400
    counts = np.zeros(3)
    for lo, hi, arm in ((0.8, 1.0, 2), (0.2, 0.55, 1)):
        inside = (lo < u) & (u <= hi)
        counts[arm] = (inside[:, None] & inside[None]).mean()
    counts[0] = 1 - counts.sum()
    assert w == pytest.approx(counts, abs=0.005)


@given(st.lists(st.tuples(st.integers(-3, 9), st.integers(1, 6)), min_size=1, max_size=25))
def test_the_front_is_what_no_other_beats(points):
    bias, faster = (np.array(values, float) for values in zip(*points, strict=True))
    kept = search.front(bias, faster)
    for at, (b, f) in enumerate(points):
        beaten = any((c <= b and g >= f) and (c < b or g > f) for c, g in points)
        assert not (beaten and kept[at])
        if not beaten:
            assert any(kept[other] for other, point in enumerate(points) if point == (b, f))


def test_the_fastest_safe_policy_is_found_from_the_top_down():
    """demote:48 is biased below 0.5; demote:56 nowhere, and is slower."""
    data = synthetic.policy_store(
        signed_bias={"demote:56": 0.0, "demote:48": (3.0, 3.0, 0.0, 0.0)}, sigmas=SIGMAS,
        noise_scale=0.2, seconds={"demote:56": 0.8, "demote:48": 0.5},
    )  # fmt: skip
    answer = answered(data, Question("uniform", "seconds", "images", "relative", 0.3, "native", 1))
    assert answer.safe["demote:48"] == ["demote:48@0.75", "demote:48@0.5"]
    assert answer.safe["demote:56"][-1] == "demote:56"
    assert answer.picked == "demote:48@0.5"
    assert answer.total["speed_up"].sel(policy="demote:48@0.5").item() == pytest.approx(1 / 0.75)
    named = answered(data, Question("uniform", "seconds", "images", "relative", 0.3, "native", 1), [
        "demote:48@0.5,demote:56@0:0.5"
    ])  # fmt: skip
    assert named.picked == "demote:48@0.5,demote:56@0:0.5"


def test_a_sequence_ends_at_the_first_that_is_not_safe_at_its_share_of_the_level():
    assert search.safe_before([0.001, 0.02, 0.001], 1) == 3
    assert search.safe_before([0.001, 0.02, 0.001], 2) == 1
    assert search.safe_before([0.03, 0.001], 1) == 0
    assert search.safe_before([float("nan")], 1) == 0


def test_one_harmful_block_keeps_a_policy_from_being_picked():
    data = synthetic.policy_store(signed_bias={"demote:56": 0.0}, sigmas=SIGMAS, noise_scale=0.2)
    bad = synthetic.policy_store(signed_bias={"demote:56": 0.9}, sigmas=SIGMAS, noise_scale=0.2)
    for name in ("gram_policy", "gram_draw"):
        axis = data[name].dims.index("block")
        at = (slice(None),) * axis + (1,)
        data[name].values[at] = bad[name].values[at]
    answer = answered(data, Question("uniform", "seconds", "images", "relative", 0.7, "native", 1))
    assert answer.total["verdict"].sel(policy="demote:56").item() == "safe"
    assert answer.picked != "demote:56"
    assert "demote:56" not in answer.safe["demote:56"]


def test_an_arm_that_is_the_native_step_to_the_bit_is_inactive():
    data = synthetic.policy_store(signed_bias={"demote:56": 0.3, "same": 0.0}, sigmas=SIGMAS)
    for name in ("gram_policy", "gram_draw"):
        for dim in ("arm", "arm_2"):
            axis = data[name].dims.index(dim)
            data[name].values[(slice(None),) * axis + (2,)] = data[name].values[(slice(None),) * axis + (0,)]
    answer = answered(data, Question("uniform", "seconds", "images", "relative", 0.2, "native", 1), ["same"])
    assert answer.total["verdict"].sel(policy="same").item() == "inactive"
    assert answer.total["relative_bias_squared"].sel(policy="same").item() == 0.0


@pytest.mark.parametrize(
    ("images", "folds"), [(8, 8), (12, 12), (24, 12), (40, 10), (32, 16), (17, 16), (250, 10), (251, 16)]
)
def test_folds_divide_the_images_evenly_where_they_can(images, folds):
    fold = fold_of_images(images)
    counts = np.bincount(fold)
    assert len(counts) == folds
    assert counts.max() - counts.min() <= (0 if images % folds == 0 else 1)
    assert (np.diff(fold) >= 0).all()


def test_fewer_than_eight_images_make_no_folds():
    with pytest.raises(UsageError, match="--policy with 7 images: takes 8 or more"):
        fold_of_images(7)


@pytest.mark.slow
@pytest.mark.parametrize("units", [8, 16])
def test_false_verdicts_at_the_margin_are_rare(units):
    """The truth lies exactly at the margin; 600 worlds, each false verdict at most 6 %, coverage at least 93 %."""
    rng, repeats, k = np.random.default_rng(1), 600, 40
    scale = np.sqrt(1 / np.arange(1, k + 1) / (1 / np.arange(1, k + 1)).sum())
    safe = harmful = covered = 0
    for _ in range(repeats):
        mean, side = np.linalg.qr(rng.normal(size=(k, 2)))[0].T
        noise = scale * rng.normal(size=(units, k))
        own = 0.25 * scale * rng.normal(size=(2, units, k))
        vectors = np.stack([mean + noise, mean + noise] * 2).reshape(2, 2, units, k) * 1.0
        vectors[:, 1] += 0.2 * side + own
        flat = vectors.reshape(4, units, k)
        one = Material(("native", "t"), (0.25, 0.75), ("a",), 0, np.einsum("anc,bmc->anbm", flat, flat)[None],
                       np.ones((1, 4, units)), 1.0)  # fmt: skip
        found = assessed(one, ["t"], np.array([[[0, 0.5], [0, 0.5]]]), every_block=False, rule="relative", margin=0.2)
        verdict = found["verdict"].item()
        safe, harmful = safe + (verdict == "safe"), harmful + (verdict == "harmful")
        lower, upper = found["lower"].item(), found["upper"].item()
        covered += not (lower > 0.04 or upper < 0.04)
    assert safe / repeats <= 0.06
    assert harmful / repeats <= 0.06
    assert covered / repeats >= 0.93
