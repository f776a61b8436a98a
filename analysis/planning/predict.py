"""With which chance would a larger sweep settle the verdict that a pilot left open?

    outlook = Outlook.of(question, moments.baseline, units=8)
    outlook.chance(4.0)                    # of a sweep of 4 times the pilot's units
    outlook.factor(0.8)                    # how many times larger for a chance of 80 %

The pilot's own estimates are uncertain, so the chance is a mean over what may be true given the pilot (assurance:
O'Hagan, Stevens and Campbell, Pharm. Stat. 4, 2005): moments drawn around the estimates by their jackknife
deviations, with Student's tails, and without those that cannot be (a negative square). Given a truth the larger sweep's
moments are normal; the pilot's units are among its own, and what the pilot is off by fades as more are added.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float
from scipy import special

from analysis.base.jackknife import Jackknifed, degrees_of_freedom, deviations, scaled_difference, variance
from analysis.verdict import LEVEL, Question

DRAWS = 1000
"""Truths for each cell."""
SEED = 20260101
LARGEST = 64.0
"""A sweep so many times the pilot is the largest that is forecast: beyond, the pilot says too little."""
PLAUSIBLE = 0.02
"""Share of the drawn truths that must be possible for there to be a forecast."""


@dataclass(frozen=True)
class Moment:
    """One moment of the pilot: estimate, jackknife deviations, and what of its variance comes from pairs of noise.

    ``value`` [*cells]; ``deviations`` [*cells, stratum, unit]; ``pairs`` [*cells], doubled as the jackknife doubles it.
    """

    value: Float[np.ndarray, "*cells"]
    deviations: Float[np.ndarray, "*cells stratum unit"]
    pairs: Float[np.ndarray, "*cells"]

    @classmethod
    def of(cls, figure: Jackknifed, pairs: Float[np.ndarray, "*cells"]) -> "Moment":
        return cls(figure.value, deviations(figure), np.minimum(pairs, variance(figure)))

    @property
    def linear(self) -> Float[np.ndarray, "*cells"]:
        """The variance that falls as one over the units."""
        return (self.deviations**2).sum((-2, -1)) - self.pairs

    def shifted(self, normal: Float[np.ndarray, "draw stratum unit"]) -> Float[np.ndarray, "draw *cells"]:
        """Standard normal shifts with this moment's correlations with the others."""
        spread = np.sqrt((self.deviations**2).sum((-2, -1)))
        moved = np.moveaxis(np.tensordot(self.deviations, normal, axes=([-2, -1], [-2, -1])), -1, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(spread > 0.0, moved / spread, 0.0)


@dataclass(frozen=True)
class Outlook:
    """What a pilot knows of a question, and with it of larger sweeps. Arrays are [*cells], of draws [draw, *cells].

    ``contrast`` T = N - theta D; ``denominator`` D; ``baseline`` |mu0|^2, which must be resolved too.
    ``noise``, ``baseline_noise``  of a unit in the larger sweep over that in the pilot: below 1 with more draws
    ``positive``  whether N cannot be negative
    """

    contrast: Moment
    denominator: Moment
    baseline: Moment
    question: Question
    degrees: Float[np.ndarray, "*cells"]
    units: int
    level: float = LEVEL
    positive: bool = True
    noise: Float[np.ndarray, "*cells"] | float = 1.0
    baseline_noise: Float[np.ndarray, "*cells"] | float = 1.0
    _drawn: dict[str, np.ndarray] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        question: Question,
        baseline: Jackknifed,
        *,
        pairs: Float[np.ndarray, "*cells"],
        baseline_pairs: Float[np.ndarray, "*cells"],
        positive: bool = True,
        level: float = LEVEL,
    ) -> "Outlook":
        """pairs, baseline_pairs: variance of T and of |mu0|^2 from pairs of noise, as the jackknife shows it."""
        contrast = scaled_difference(question.numerator, question.denominator, question.threshold)
        return cls(
            Moment.of(contrast, pairs),
            Moment.of(question.denominator, np.zeros_like(pairs)),
            Moment.of(baseline, baseline_pairs),
            question,
            degrees_of_freedom(contrast),
            contrast.replicates.shape[-1],
            level,
            positive,
        )._with_truths()

    def with_noise(self, noise: np.ndarray, baseline_noise: np.ndarray) -> "Outlook":
        """The outlook for sweeps whose units are less or more noisy."""
        return replace(self, noise=noise, baseline_noise=baseline_noise)

    def _with_truths(self) -> "Outlook":
        """Draw what may be true, and standard normal errors of the larger sweep, once for every size of it."""
        generator = np.random.default_rng(SEED)
        shape = (DRAWS, *self.contrast.deviations.shape[-2:])
        now, later = generator.standard_normal(shape), generator.standard_normal(shape)
        # One stream for every cell, so that none depends on which others are asked for.
        below = generator.random(DRAWS).reshape(-1, *(1,) * self.degrees.ndim)
        tails = np.sqrt(self.degrees / special.chdtri(self.degrees, below))
        drawn = {}
        for name in ("contrast", "denominator", "baseline"):
            moment: Moment = getattr(self, name)
            # As wide as the jackknife says, which counts pairs of noise twice: forecasts of small sweeps need that.
            spread = np.sqrt(moment.linear + moment.pairs)
            drawn[name] = moment.value + tails * spread * moment.shifted(now)
            drawn[f"{name} error"] = moment.shifted(later)
        theta = self.question.threshold
        possible = (drawn["baseline"] > 0.0) & (drawn["denominator"] > 0.0)
        if self.positive:
            possible &= drawn["contrast"] + theta * drawn["denominator"] >= 0.0
        return replace(self, _drawn=drawn | {"possible": possible})

    @property
    def told(self) -> np.ndarray:
        """Whether the pilot says enough for a forecast, [*cells]."""
        return self._drawn["possible"].mean(0) >= PLAUSIBLE

    def chance(self, factor: float | Float[np.ndarray, "*cells"]) -> Float[np.ndarray, "*cells"]:
        """Of a settled verdict from ``factor`` times the pilot's units; NaN where the pilot does not tell."""
        factor = np.asarray(factor, dtype=np.float64)
        growth, theta = self.question.growth, self.question.threshold
        truth = self._drawn["contrast"]
        per_noise = growth.numerator * self.noise / factor
        variance_there = self._linear(truth) / factor + 0.5 * self._pairs() / factor**2
        contrast = truth + self._error("contrast", truth, variance_there, self._linear(truth) + 0.5 * self._pairs())
        denominator = self._drawn["denominator"]
        base = self.baseline
        base_there = self.baseline_noise * base.linear / factor + 0.5 * self.baseline_noise**2 * base.pairs / factor**2
        base_now = self.baseline_noise * base.linear + 0.5 * self.baseline_noise**2 * base.pairs
        baseline = self._drawn["baseline"] + self._error("baseline", self._drawn["baseline"], base_there, base_now)

        shown = self._linear(contrast) / factor + self._pairs() / factor**2
        below, above = np.maximum(-contrast, 0.0), np.maximum(contrast, 0.0)
        safe = shown + per_noise * below + growth.spread * below**2 / factor
        harmful = shown + theta * growth.denominator * self.baseline_noise / factor * above
        if growth.noise_denominator:
            at_margin = (contrast / denominator + theta) ** 2 - theta**2
            harmful = harmful + np.where(above > 0.0, self.denominator.linear / factor * at_margin, 0.0)
        quantile = -special.stdtrit(self.degrees * (self.units * factor - 1.0) / (self.units - 1.0), self.level)
        base_shown = base_there + 0.5 * self.baseline_noise**2 * base.pairs / factor**2
        settled = (contrast + quantile * np.sqrt(safe) < 0.0) | (contrast - quantile * np.sqrt(harmful) > 0.0)
        settled &= baseline > quantile * np.sqrt(base_shown)
        possible = self._drawn["possible"]
        share = (settled & possible).sum(0) / np.maximum(possible.sum(0), 1)
        return np.where(self.told, share, np.nan)

    def factor(self, wanted: float) -> Float[np.ndarray, "*cells"]:
        """How many times the pilot's units give that chance; NaN beyond ``LARGEST`` or without a forecast."""
        low, high = np.zeros_like(self.degrees), np.full_like(self.degrees, np.log(LARGEST))
        with np.errstate(invalid="ignore"):
            reached, enough_now = self.chance(LARGEST) >= wanted, self.chance(1.0) >= wanted
            for _ in range(14):
                middle = 0.5 * (low + high)
                enough = self.chance(np.exp(middle)) >= wanted
                low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where(enough_now, 1.0, np.where(reached, np.exp(high), np.nan))

    def _linear(self, contrast: np.ndarray) -> np.ndarray:
        """Variance of T that falls as one over the units, per unit of the pilot, were T what it is given as."""
        grown = self.contrast.linear + self.question.growth.numerator * (contrast - self.contrast.value)
        return self.noise * np.maximum(grown, 0.0)

    def _pairs(self) -> np.ndarray:
        return self.noise**2 * self.contrast.pairs

    def _error(self, name: str, truth: np.ndarray, there: np.ndarray, now: np.ndarray) -> np.ndarray:
        """Error of the larger sweep: what is left of the pilot's, and what the further units add.

        A U-statistic's covariance with itself at fewer units is its variance at more (Hoeffding 1948).
        """
        moment: Moment = getattr(self, name)
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = np.where(now > 0.0, np.minimum(there / now, 1.0), 0.0)
        own = np.sqrt(np.maximum(there * (1.0 - kept), 0.0))
        return kept * (moment.value - truth) + own * self._drawn[f"{name} error"]
