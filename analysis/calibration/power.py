"""How often each rule reaches a verdict, and which, when the true bias is not at the margin."""

import numpy as np

from analysis import moments, verdict
from analysis.calibration.cases import Case
from analysis.calibration.simulate import rates, true_noise
from analysis.synthetic import Draws, Planted


def power(case: Case, *, repeats: int, seed: int) -> dict[str, float]:
    """Rates of ``safe_*`` and ``harmful_*`` per rule, at margins that all stand for a bias of ``case.margin``."""
    return rates(case, _verdicts, repeats=repeats, seed=seed)


def _verdicts(case: Case, world: Planted, drawn: Draws, measured: moments.Moments) -> dict[str, np.ndarray]:
    out = {}
    for rule, question in _margins(case, world, drawn, measured).items():
        decided = verdict.decide(question, measured.baseline)
        for name in (verdict.SAFE, verdict.HARMFUL):
            out[f"{name}_{rule}"] = decided.verdict[:, 0] == name
    return out


def _margins(case: Case, world: Planted, drawn: Draws, measured: moments.Moments) -> dict[str, verdict.Question]:
    """Every rule with the margin that a bias of that length would reach; a turn of that length for ``angle``."""
    square = case.margin**2
    grown = 1.0 + 2.0 * world.difference * world.correlation + world.difference**2
    questions = {
        "relative": verdict.relative(measured, case.margin),
        "angle": verdict.angle(measured, 0.5 * square),
        "budget": verdict.budget(measured, true_noise(case, world, drawn)[:, None] * grown / square),
    }
    if measured.same_image is not None:
        excess = np.full(len(drawn.mean), world.difference**2 * world.between * world.noise_scale)
        if case.population == "corpus":
            excess = (drawn.image_bias**2).sum(-1).mean(-1)[:, 0] - (drawn.bias[:, 0] ** 2).sum(-1)
        questions["gap"] = verdict.per_image(measured.same_image, measured, square + excess[:, None])
    return questions
