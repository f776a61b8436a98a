"""A plan from a pilot's store: every sigma and arm, in the sum over blocks."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis import verdict
from analysis.base import spectrum
from analysis.base.jackknife import degrees_of_freedom
from analysis.errors import UsageError
from analysis.moments import Moments
from analysis.planning.detect import smallest_square
from analysis.planning.predict import Outlook
from analysis.report import counted
from analysis.safety import FEWEST_IMAGES, Request, cell_moments, check, level_of
from analysis.sequential import looks_of
from analysis.steps import at_step

DRAWS = (1, 2, 4, 8)
"""Draws an image that a plan for a population of images looks into, beside the pilot's own."""


@dataclass(frozen=True)
class Asked:
    """margin: in the rule's unit; arms: all treated ones if none is named; chance: that the verdict is settled."""

    margin: float
    rule: str = "relative"
    baseline: str = "native"
    population: str = "images"
    control: str | None = None
    arms: tuple[str, ...] = ()
    chance: float = 0.8
    metric: str | None = None


@dataclass(frozen=True)
class Option:
    """One way to settle a cell. seconds: of the baseline's and the arm's gradients in one process, as in the pilot."""

    images: int
    draws: int
    gradients: int
    seconds: float


@dataclass(frozen=True)
class Cell:
    """option: with the pilot's draws, None where the pilot does not tell; others: with other draws.

    smallest_bias: relative bias that the present size tells from none with the chance asked for; NaN where the
    baseline's mean gradient is itself not told from 0.
    """

    sigma: float
    arm: str
    verdict: str
    option: Option | None
    others: tuple[Option, ...]
    smallest_bias: float

    @property
    def active(self) -> bool:
        """Whether the arm makes another step than the baseline."""
        return self.verdict != verdict.INACTIVE

    @property
    def settled(self) -> bool:
        """Whether the pilot itself has the verdict, or there is none to have."""
        return self.verdict != verdict.UNRESOLVED


@dataclass(frozen=True)
class Planned:
    """images [sigma], draws: the pilot's; seconds_of_gradient [sigma]: of all planned arms and the baseline, together.

    unfinished: sigma that the pilot has not measured yet, of which nothing is told;
    level: one-sided, of the pilot's own verdicts: that of a look where its cells stopped by what had been seen.
    """

    asked: Asked
    images: dict[float, int]
    draws: int
    cells: tuple[Cell, ...]
    seconds_of_gradient: dict[float, float]
    unfinished: tuple[float, ...]
    level: float


def plan(dataset: xr.Dataset, asked: Asked) -> Planned:
    """What would settle each cell of the store that is done. UsageError for what the pilot cannot tell."""
    dataset = at_step(dataset, None)
    arms = _arms(dataset, asked)
    request = Request(asked.baseline, asked.population, asked.rule, asked.margin, asked.control)
    check(dataset, request)
    if not 0.5 <= asked.chance < 1.0:
        raise UsageError(f"chance {asked.chance:g} of a settled verdict: give 0.5 or more, and less than 1")
    done = np.flatnonzero(dataset["done"].values)
    if not done.size:
        raise UsageError("no cell of this pilot is done; resume the sweep that writes it")
    images = dict(
        zip(dataset["sigma"].values[done].tolist(), dataset["images_used"].values[done].tolist(), strict=True)
    )
    fewest = min(images.values())
    if fewest < FEWEST_IMAGES:
        raise UsageError(
            f"this pilot has {counted(fewest, 'image')}, whose spread says too little: a plan needs "
            f"{FEWEST_IMAGES} images, better 8 or more"
        )
    metric = dataset["metric"].values[0] if asked.metric is None else asked.metric
    if metric not in dataset["metric"].values:
        raise UsageError(f"metric {metric!r} is not in this store; it has {', '.join(dataset['metric'].values)}")
    chosen = dataset.sel(metric=[metric])
    level = level_of(looks_of(dataset), asked.rule)
    cells: list[Cell] = []
    seconds: dict[float, float] = {}
    for index in done.tolist():
        at = _seconds(dataset, index)
        of_sigma = list(_cells(chosen, index, request, arms, asked, at, level))
        # An arm that makes the baseline's step is not measured again.
        seconds[of_sigma[0].sigma] = at[asked.baseline] + sum(at[cell.arm] for cell in of_sigma if cell.active)
        cells += of_sigma
    unfinished = tuple(dataset["sigma"].values[~dataset["done"].values].tolist())
    return Planned(asked, images, dataset.sizes["draw"], tuple(cells), seconds, unfinished, level)


def _arms(dataset: xr.Dataset, asked: Asked) -> list[str]:
    """Treated arms that are planned for. UsageError for one that is not in the store."""
    held = [arm for arm in dataset["arm"].values.tolist() if arm != asked.baseline]
    for arm in asked.arms:
        if arm not in held:
            raise UsageError(f"arm {arm!r} is not a treated arm of this store; it has {', '.join(held)}")
    if asked.arms and asked.control is not None and asked.control not in held:
        raise UsageError(f"control {asked.control!r} is not a treated arm of this store; it has {', '.join(held)}")
    return list(dict.fromkeys(asked.arms)) or held


def _seconds(dataset: xr.Dataset, index: int) -> dict[str, float]:
    """Of one gradient, by arm, as the pilot took."""
    cell = dataset.isel(sigma=index)
    gradients = int(cell["images_used"]) * dataset.sizes["draw"]
    return {str(arm): float(cell["seconds"].sel(arm=arm)) / gradients for arm in dataset["arm"].values}


def _cells(
    dataset: xr.Dataset,
    index: int,
    request: Request,
    arms: list[str],
    asked: Asked,
    seconds: dict[str, float],
    level: float,
) -> Iterator[Cell]:
    """One sigma, arm by arm."""
    measured = [*arms, *([asked.control] if asked.control is not None and asked.control not in arms else [])]
    part = cell_moments(_summed(dataset, index), 0, request, measured)
    total = (0, -1)
    question = _question(part, asked, measured)
    decided = verdict.decide(question, part.baseline, level=level)
    squares = np.diagonal(part.bias_gram[total], axis1=-2, axis2=-1)
    idle = (squares == 0.0).all(-1)
    corpus, draws, images = (
        asked.population == "corpus",
        dataset.sizes["draw"],
        int(dataset["images_used"].values[index]),
    )
    ahead = outlook(part, question, asked)
    found = {draws: ahead.factor(asked.chance)}
    for there in _other_draws(asked, draws):
        found[there] = ahead.with_noise(*_noise_with(part, draws, there)).factor(asked.chance)
    smallest = _smallest_bias(part, asked)
    for place, arm in enumerate(arms):
        said = verdict.INACTIVE if idle[place] else str(decided.verdict[total][place])
        each = seconds[arm] + seconds[asked.baseline]
        options: list[Option | None] = []
        for there, factors in found.items():
            factor = factors[total][place]
            known = said == verdict.UNRESOLVED and np.isfinite(factor)
            n = max(images if corpus else grown(images, factor), FEWEST_IMAGES) if known else 0
            d = grown(draws, factor) if known and corpus else there
            options.append(Option(n, d, 2 * n * d, n * d * each) if known else None)
        others = tuple(option for option in options[1:] if option is not None)
        yield Cell(float(dataset["sigma"][index]), arm, said, options[0], others, float(smallest[total][place]))


def grown(units: int, factor: float) -> int:
    """Whole units in ``factor`` times as many."""
    return int(np.ceil(units * factor - 1e-6))


def _summed(dataset: xr.Dataset, index: int) -> xr.Dataset:
    """One cell with the sum over blocks as its only block."""
    cell = dataset.isel(sigma=[index])
    grams = {name: cell[name] for name in ("gram_image", "gram_draw", "gram_cross") if name in cell}
    summed = {
        name: (gram.dims, gram.values.sum(gram.dims.index("block"), keepdims=True)) for name, gram in grams.items()
    }
    return cell.drop_vars(list(grams)).isel(block=[0]).assign(summed)


def _other_draws(asked: Asked, draws: int) -> list[int]:
    """Draws that are looked into beside the pilot's; a single one cannot tell what more would bring."""
    return [] if asked.population == "corpus" or draws < 2 else [other for other in DRAWS if other != draws]


def _question(part: Moments, asked: Asked, arms: list[str]) -> verdict.Question:
    if asked.control is not None:
        return verdict.gap(part, asked.margin, arms.index(asked.control))
    return verdict.RULES[asked.rule](part, asked.margin)


def outlook(part: Moments, question: verdict.Question, asked: Asked) -> Outlook:
    """What the question may come to in larger sweeps."""
    pairs, base_pairs = _pairs(part, question, asked)
    return Outlook.of(question, part.baseline, pairs=pairs, baseline_pairs=base_pairs, positive=asked.control is None)


def _pairs(part: Moments, question: verdict.Question, asked: Asked) -> tuple[np.ndarray, np.ndarray]:
    """Variance of T and of |mu0|^2 from pairs of noise, as the jackknife shows it."""
    if asked.population == "corpus":
        return (0.25 if asked.rule == "angle" else 1.0) * part.bias_pairs, part.baseline_pairs
    own = np.zeros_like(part.bias.value) if question.gram is None else spectrum.pair_variance(question.gram)
    return own, part.baseline_pairs


def _within(part: Moments) -> np.ndarray:
    """Trace of the covariance of an image's mean difference over its draws."""
    assert part.same_image is not None
    return np.diagonal(part.bias_gram, axis1=-2, axis2=-1).mean(-1) - part.same_image.value


def _noise_with(part: Moments, draws: int, there: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise of an image's mean over ``there`` draws, over that with ``draws``: of the difference, of the baseline."""
    delta, base = _trace(part.bias_gram), _trace(part.baseline_gram)
    own = np.clip(_within(part), 0.0, delta)
    base_own = np.clip((part.noise_baseline.value - base) / (draws - 1), 0.0, base)
    change = draws / there - 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return (
            np.where(delta > 0.0, 1.0 + change * own / delta, 1.0),
            np.where(base > 0.0, 1.0 + change * base_own / base, 1.0),
        )


def _trace(gram: np.ndarray) -> np.ndarray:
    """Of the covariance over images."""
    return np.trace(spectrum.centred(gram), axis1=-2, axis2=-1) / (gram.shape[-1] - 1)


def _smallest_bias(part: Moments, asked: Asked) -> np.ndarray:
    """Relative bias told from none at the present size; NaN where |mu0|^2 is not told from 0."""
    square = smallest_square(part.bias_curvature, part.bias_pairs, degrees_of_freedom(part.bias), asked.chance)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            verdict.resolved_p(part.baseline) < verdict.LEVEL, np.sqrt(square / part.baseline.value), np.nan
        )
