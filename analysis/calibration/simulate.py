"""How often each verdict is false and each interval holds the truth, in one case."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from analysis import estimate, moments, verdict
from analysis.calibration.cases import Case
from analysis.synthetic import Draws, Planted, gram_arrays, sample

CHUNK_BYTES = 50e6


def simulate(case: Case, *, repeats: int, seed: int) -> dict[str, float]:
    """Rates over ``repeats``: ``safe``, ``harmful``, and per figure ``coverage_*`` and ``unresolved_*``.

    With rho at the margin the first two are the sizes of the verdicts. A figure whose interval is unresolved makes no
    claim and counts as covered; how many are is told beside it.
    """
    return rates(case, _outcomes, repeats=repeats, seed=seed)


Outcomes = Callable[[Case, Planted, Draws, moments.Moments], dict[str, np.ndarray]]


def rates(case: Case, outcomes: Outcomes, *, repeats: int, seed: int) -> dict[str, float]:
    """Mean over ``repeats`` of what ``outcomes`` tells of each, as booleans [repeat], in chunks that fit memory."""
    generator = np.random.default_rng(seed)
    world = case.world()
    per_repeat = 8.0 * 2 * case.images * (case.draws * len(case.spectrum) + 2 * case.images)
    chunk = max(1, int(CHUNK_BYTES / per_repeat))
    parts = []
    for start in range(0, repeats, chunk):
        drawn, measured = _drawn(case, world, generator, min(chunk, repeats - start))
        parts.append(outcomes(case, world, drawn, measured))
    return {name: float(np.concatenate([part[name] for part in parts]).mean()) for name in parts[0]}


def _drawn(case: Case, world: Planted, generator: np.random.Generator, repeats: int) -> tuple[Draws, moments.Moments]:
    """Gradients of ``repeats`` measurements, and the moments that each would give."""
    corpus = case.population == "corpus"
    drawn = sample(world, generator, repeats=repeats, images=case.images, draws=case.draws, fixed_corpus=corpus)
    image, draw, cross = gram_arrays(drawn.gradients)
    places = {"baseline": 0, "arms": [1]}
    return drawn, moments.corpus(image, draw, cross, **places) if corpus else moments.images(image, draw, **places)


def first(gradients: np.ndarray, images: int) -> moments.Moments:
    """Moments of the first ``images`` of gradients [repeat, arm, image, draw, parameter]."""
    image, draw, _ = gram_arrays(gradients[:, :, :images])
    return moments.images(image, draw, baseline=0, arms=[1])


def _outcomes(case: Case, world: Planted, drawn: Draws, measured: moments.Moments) -> dict[str, np.ndarray]:
    """Verdicts with the truth at the margin, and intervals that hold it."""
    out: dict[str, np.ndarray] = {}
    for rule, question in questions(case, world, drawn, measured).items():
        decided = verdict.decide(question, measured.baseline)
        for name in (verdict.SAFE, verdict.HARMFUL):
            out[f"{name}_{rule}"] = decided.verdict[:, 0] == name
    bias, mean = drawn.bias[:, 0], drawn.mean
    treated = mean + bias
    mixed, squared = (mean * treated).sum(-1), (treated**2).sum(-1)
    truths = {
        "relative_bias_squared": (bias**2).sum(-1),
        "gain": mixed - 1.0,
        "norm_ratio_squared": squared,
        "one_minus_cosine": 1.0 - mixed / np.sqrt(squared),
        "turn_squared": squared - mixed**2,
        "noise_scale": true_noise(case, world, drawn),
    }
    for name, truth in truths.items():
        figure: estimate.Figure = getattr(estimate, name)(measured)
        lower, upper = figure.lower[:, 0], figure.upper[:, 0]
        unresolved = np.isnan(lower)
        rounding = 1e-9 * np.abs(truth)
        out[f"coverage_{name}"] = unresolved | ((lower <= truth + rounding) & (truth - rounding <= upper))
        out[f"unresolved_{name}"] = unresolved
    return out


def true_noise(case: Case, world: Planted, drawn: Draws) -> Float[np.ndarray, " repeat"]:
    """True S of the baseline: of the population, or within these images."""
    if case.population == "images":
        return np.full(len(drawn.mean), world.noise_scale)
    return world.noise_scale * (1.0 - world.between) * (drawn.scale**2).mean(-1)


def questions(case: Case, world: Planted, drawn: Draws, measured: moments.Moments) -> dict[str, verdict.Question]:
    """Every rule's question, with the margin put where the truth is; ``relative`` keeps the case's margin."""
    bias, treated = drawn.bias[:, :1], drawn.mean[:, None] + drawn.bias[:, :1]
    cosine = (drawn.mean[:, None] * treated).sum(-1) / np.linalg.norm(treated, axis=-1)
    grown = 1.0 + 2.0 * world.difference * world.correlation + world.difference**2
    per_image = (drawn.image_bias**2).sum(-1).mean(-1)
    noise = true_noise(case, world, drawn)[:, None]
    if case.population == "images":
        between = world.difference**2 * world.between * world.noise_scale
        per_image = np.full_like(per_image, case.relative_bias**2 + between)
    questions = {"relative": verdict.relative(measured, case.margin)}
    if case.relative_bias > 0.0:
        questions["angle"] = verdict.angle(measured, np.maximum(1.0 - cosine, 1e-12))
        questions["budget"] = verdict.budget(measured, noise * grown / (bias**2).sum(-1))
    if measured.same_image is not None:
        questions["gap"] = verdict.per_image(measured.same_image, measured, per_image)
    return questions
