"""Three-valued verdicts: safe, harmful, or unresolved (docs/method.md, section 6).

A rule asks whether N / D <= theta for two moments. The verdict tests T = N - theta D on either side at 2.5 %.
Where N is estimated too small by chance, so is its variance, and a plain test is too eager to say safe; so the variance
is taken as it would be at the margin: V_safe = V + k_N (theta D - N)+ and V_harm = V + theta k_D (N - theta D)+.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import special

from analysis import estimate
from analysis.base.fieller import Growth
from analysis.base.jackknife import Jackknifed, degrees_of_freedom, derive, scaled_difference, variance
from analysis.moments import Moments

LEVEL = 0.025
"""One-sided level of each verdict, so that the 95 % interval and the verdict agree."""
SAFE, HARMFUL, UNRESOLVED = "safe", "harmful", "unresolved"
INACTIVE = "inactive"
"""No verdict: the arm makes the baseline's step there, to the bit, as one does outside its window."""


Threshold = float | Float[np.ndarray, "*cells"]


@dataclass(frozen=True)
class Question:
    """Is N / D <= ``threshold``?

    ``growth`` is that of the sampling variances of N and D. ``gram`` is the contrast's Gram matrix over images, which
    tells pairs of noise (None: the contrast is a plain mean over images).
    """

    numerator: Jackknifed
    denominator: Jackknifed
    threshold: Threshold
    growth: Growth
    gram: Float[np.ndarray, "*cells n n"] | None = None


@dataclass(frozen=True)
class Verdict:
    """``p_safe``, ``p_harmful``: one-sided p values; NaN where the question itself is undefined."""

    verdict: np.ndarray
    p_safe: Float[np.ndarray, "*cells"]
    p_harmful: Float[np.ndarray, "*cells"]
    contrast: Jackknifed
    degrees: Float[np.ndarray, "*cells"]
    variance_safe: Float[np.ndarray, "*cells"]
    variance_harmful: Float[np.ndarray, "*cells"]


def relative(moments: Moments, margin: Threshold) -> Question:
    """rho <= margin."""
    gram = moments.bias_gram - np.asarray(margin)[..., None, None] ** 2 * moments.baseline_gram
    growth = Growth(moments.bias_curvature, moments.baseline_curvature)
    return Question(moments.bias, moments.baseline, margin**2, growth, gram)


def angle(moments: Moments, margin: Threshold) -> Question:
    """1 - cosine <= margin; near 0, 1 - cosine is half the squared turn, and so is its growth of variance."""
    gram = 0.5 * moments.bias_gram - np.asarray(margin)[..., None, None] * moments.baseline_gram
    growth = Growth(0.5 * moments.bias_curvature, moments.baseline_curvature)
    return Question(estimate.missing_product(moments), estimate.norm_product(moments), margin, growth, gram)


def budget(moments: Moments, margin: Threshold) -> Question:
    """N* >= margin samples (steps x batch): |bias|^2 <= S_t / margin (Eq. 11)."""
    growth = Growth(moments.bias_curvature, noise_denominator=True)
    return Question(moments.bias, moments.noise_treated, 1.0 / margin, growth, moments.bias_gram)


def gap(moments: Moments, margin: Threshold, control: int) -> Question:
    """Mean over images of each image's squared bias, less the control arm's, <= margin |mu0|^2 (Eq. 12).

    ``control`` is its place among the treated arms, the last axis of the cells.
    """
    if moments.same_image is None:
        raise ValueError("the rule gap needs two draws per image")
    own = moments.same_image
    base = Jackknifed(own.value[..., control, None], own.replicates[..., control, None, :, :])
    return per_image(derive(np.subtract, own, base), moments, margin)


def per_image(excess: Jackknifed, moments: Moments, margin: Threshold) -> Question:
    """Is ``excess``, a mean over images of squared biases, <= margin |mu0|^2?

    Images differ, and the mean of a few skewed squares is too small more often than not, with too small a spread. For a
    population of images their coefficient of variation at the margin is taken as observed, but between 1 and 2.
    """
    own = moments.same_image
    assert own is not None
    spread: np.ndarray = np.zeros_like(own.value)
    if own.replicates.shape[-2] == 1:
        n = own.replicates.shape[-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            observed = np.where(own.value > 0.0, variance(own) / own.value**2, 0.0)
        spread = np.clip(observed, 1.0 / n, 4.0 / n)
    growth = Growth(moments.same_image_curvature, moments.baseline_curvature, spread=spread)
    return Question(excess, moments.baseline, margin, growth)


RULES: dict[str, Callable[..., Question]] = {"relative": relative, "angle": angle, "gap": gap, "budget": budget}


def decide(question: Question, baseline: Jackknifed, *, level: float = LEVEL) -> Verdict:
    """Verdict of a question; nothing is said where the baseline's |mu0|^2 is itself not resolved from 0.

    level: one-sided, of each verdict.
    """
    contrast = scaled_difference(question.numerator, question.denominator, question.threshold)
    safe, harmful = _variances(question, contrast)
    degrees = degrees_of_freedom(contrast)
    gate = resolved_p(baseline)
    p_safe = np.maximum(one_sided_p(-contrast.value, safe, degrees), gate)
    p_harmful = np.maximum(one_sided_p(contrast.value, harmful, degrees), gate)
    with np.errstate(invalid="ignore"):
        verdict = np.where(p_safe < level, SAFE, np.where(p_harmful < level, HARMFUL, UNRESOLVED))
    return Verdict(verdict, p_safe, p_harmful, contrast, degrees, safe, harmful)


def resolved_p(baseline: Jackknifed) -> np.ndarray:
    """p value of |mu0|^2 being 0: without the baseline told from 0 nothing is said of an arm."""
    return one_sided_p(baseline.value, variance(baseline), degrees_of_freedom(baseline))


def _variances(question: Question, contrast: Jackknifed) -> tuple[np.ndarray, np.ndarray]:
    """V_safe and V_harm: the contrast's variance if N (safe) or theta D (harmful) were as large as the other."""
    growth, theta = question.growth, question.threshold
    plain = variance(contrast)
    below, above = np.maximum(-contrast.value, 0.0), np.maximum(contrast.value, 0.0)
    safe = plain + growth.numerator * below + growth.spread * below**2
    harmful = plain + theta * growth.denominator * above
    if growth.noise_denominator:
        with np.errstate(divide="ignore", invalid="ignore"):
            at_margin = (question.numerator.value / question.denominator.value) ** 2 - theta**2
        harmful = harmful + np.where(above > 0.0, variance(question.denominator) * at_margin, 0.0)
    return safe, harmful


def one_sided_p(
    value: Float[np.ndarray, "*cells"], spread: Float[np.ndarray, "*cells"], degrees: Float[np.ndarray, "*cells"]
) -> Float[np.ndarray, "*cells"]:
    """p value of the hypothesis that ``value``, with variance ``spread``, is at most 0; NaN for NaN."""
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = np.where(spread > 0.0, value / np.sqrt(spread), np.sign(value) * np.inf)
    statistic = np.where(np.isnan(value) | np.isnan(spread), np.nan, np.where(value == 0.0, 0.0, statistic))
    return np.asarray(special.stdtr(degrees, -statistic))
