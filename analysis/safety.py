"""Is a treatment safe at this noise level? Every figure and verdict of a probe store, as one labelled dataset.

    assessed = assess(dataset, margin=0.2)
    assessed.verdict.sel(arm="demote:56", block="total")

The variables are those of docs/method.md, sections 5 and 6; NaN is unresolved.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr

from analysis import estimate, forecast, moments, simultaneous, trust, verdict
from analysis.base import spectrum
from analysis.errors import Refused, UsageError
from analysis.moments import Moments
from analysis.schema import TOTAL
from analysis.sequential import TOTALS, Looks, looks_of, repeated_p
from analysis.steps import at_step

POPULATIONS = ("images", "corpus")
FEWEST_IMAGES = 4
FEWEST_DRAWS = 4
DIMS = ("metric", "block", "arm")
NEEDED = ("images_needed", "draws_needed")


@dataclass(frozen=True)
class Request:
    """What is asked of a store: ``margin`` is in the rule's unit, ``control`` belongs to the rule ``gap`` alone."""

    baseline: str
    population: str
    rule: str
    margin: float
    control: str | None = None


def assess(
    dataset: xr.Dataset,
    *,
    baseline: str = "native",
    population: str = "images",
    rule: str = "relative",
    margin: float = 0.2,
    control: str | None = None,
) -> xr.Dataset:
    """Figures and verdicts [metric, sigma, block, arm] of every arm against ``baseline``.

    The last block is ``"total"``, the sum over blocks. Cells that are not done are left out, with a warning in
    ``attrs["warnings"]`` (JSON list). ``margin``: rho for ``relative``, 1 - cosine for ``angle``, samples (steps x
    batch) for ``budget``, mean excess squared bias over |mu0|^2 for ``gap``. Raises UsageError for what the store
    cannot answer; of several steps one is chosen by ``analysis.steps.at_step``.
    """
    dataset = at_step(dataset, None)
    request = Request(baseline, population, rule, margin, control)
    check(dataset, request)
    looks = looks_of(dataset)
    done = np.flatnonzero(dataset["done"].values)
    if not done.size:
        raise UsageError("no cell of this store is done; resume the sweep that writes it")
    warnings = [] if looks is None else [_of_looks(looks, rule, dataset["images_used"].values[done])]
    if done.size < dataset.sizes["sigma"]:
        missing = np.setdiff1d(np.arange(dataset.sizes["sigma"]), done)
        listed = ", ".join(f"{value:g}" for value in dataset["sigma"].values[missing])
        warnings.append(f"sigma {listed} not done, left out")
    arms = [arm for arm in dataset["arm"].values.tolist() if arm != baseline]
    curve = simultaneous.Curve(population)
    parts = []
    for index in done:
        part = cell_moments(dataset, int(index), request, arms)
        parts.append(_without_idle(part, _cell(part, request, arms, looks)))
        curve.add(part)
    warnings += trust.warnings(dataset, done, arms, population, rule)
    lower, upper = curve.bands()
    for index, part in enumerate(parts):
        part["simultaneous_lower"], part["simultaneous_upper"] = lower[index], upper[index]
    return _labelled(dataset, done, arms, parts, request, warnings)


def level_of(looks: Looks | None, rule: str) -> float:
    """One-sided level of a verdict: that of a look where cells stopped by what had been seen."""
    return verdict.LEVEL if looks is None else looks.level(rule)


def _of_looks(looks: Looks, rule: str, used: np.ndarray) -> str:
    """What is special about the verdicts of a sweep that stopped by what it saw; used: images [sigma]."""
    counts, total = ", ".join(map(str, looks.counts[:-1])), f"{100 * TOTALS[rule]:g} %"
    early = int((used < looks.counts[-1]).sum())
    return (
        f"a sigma was to stop at {counts} images as soon as its verdicts were settled, and {early or 'none'} of "
        f"{used.size} did before all {looks.counts[-1]}: verdicts are at one-sided "
        f"{100 * looks.level(rule):.2f} % a look, {total} over all looks; windows and gates at 2.5 % over all looks; "
        "intervals are those of a fixed number of images"
    )


def _without_idle(part: Moments, cell: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """``cell`` without verdicts where an arm's gradients are those of the baseline to the bit, all blocks together."""
    squares = np.diagonal(part.bias_gram, axis1=-2, axis2=-1)
    idle = np.broadcast_to((squares == 0.0).all(-1)[:, -1:], cell["verdict"].shape)
    undecided = {name: np.where(idle, np.nan, cell[name]) for name in ("p_safe", "p_harmful", *NEEDED)}
    return cell | undecided | {"verdict": np.where(idle, verdict.INACTIVE, cell["verdict"])}


def cell_moments(dataset: xr.Dataset, index: int, request: Request, arms: list[str]) -> Moments:
    """Moments [metric, block + total, arm] of one sigma."""
    names = dataset["arm"].values.tolist()
    places = {"baseline": names.index(request.baseline), "arms": [names.index(arm) for arm in arms]}
    cell = dataset.isel(sigma=index)
    n = int(cell["images_used"])
    if n < FEWEST_IMAGES and request.population == "images":
        raise UsageError(
            f"sigma {float(cell['sigma']):g} holds {n} images; population images needs {FEWEST_IMAGES} or more"
        )
    image = _with_total(cell["gram_image"].values[..., :n, :, :n])
    draw = _with_total(cell["gram_draw"].values[:, :, :n])
    if request.population == "images":
        return moments.images(image, draw, **places)
    return moments.corpus(image, draw, _with_total(cell["gram_cross"].values[:, :, :n]), **places)


def _with_total(gram: np.ndarray) -> np.ndarray:
    """[metric, block, ...] with the sum over blocks as a last block."""
    return np.concatenate([gram, gram.sum(1, keepdims=True)], axis=1)


def _cell(part: Moments, request: Request, arms: list[str], looks: Looks | None) -> dict[str, np.ndarray]:
    """Every variable [metric, block, arm] of one sigma."""
    return figures(part) | _verdict(part, request, arms, looks)


def figures(part: Moments) -> dict[str, np.ndarray]:
    """Every figure of every cell with its interval, by name; of bias and its interval the squares."""
    bias = estimate.relative_bias_squared(part)
    out = {
        "relative_bias_squared": bias.value,
        "standard_error": bias.standard_error,
        "lower": bias.lower,
        "upper": bias.upper,
    }
    mapped = {
        "cosine": estimate.one_minus_cosine(part).mapped(lambda gap: 1.0 - gap),
        "norm_ratio": estimate.norm_ratio_squared(part).mapped(_root),
        "gain": estimate.gain(part).mapped(lambda value: value),
        "turn_squared": estimate.turn_squared(part).mapped(lambda value: value),
        "noise_scale": estimate.noise_scale(part).mapped(lambda value: value),
        "samples_to_notice": estimate.bias_per_noise(part).mapped(_reciprocal),
    }
    for name, (value, lower, upper) in mapped.items():
        out |= {name: value, f"{name}_lower": lower, f"{name}_upper": upper}
    return out


def _root(square: np.ndarray) -> np.ndarray:
    """Square root, 0 for a bound below 0."""
    return np.sqrt(np.maximum(square, 0.0))


def _reciprocal(per_noise: np.ndarray) -> np.ndarray:
    """Samples to notice from 1 / N*: infinite for a bias that may be zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(per_noise > 0.0, 1.0 / per_noise, np.where(np.isnan(per_noise), np.nan, np.inf))


def _verdict(part: Moments, request: Request, arms: list[str], looks: Looks | None) -> dict[str, np.ndarray]:
    """Where cells stopped by what had been seen, at the level of a look and with repeated p values."""
    question = _question(part, request, arms)
    decided = verdict.decide(question, part.baseline, level=level_of(looks, request.rule))
    p_safe, p_harmful = (
        p_values if looks is None else repeated_p(p_values, looks.counts)
        for p_values in (decided.p_safe, decided.p_harmful)
    )
    unresolved = decided.verdict == verdict.UNRESOLVED
    contrast = decided.contrast
    spread = np.where(contrast.value < 0.0, decided.variance_safe, decided.variance_harmful)
    units = contrast.replicates.shape[-1]
    pairs = np.zeros_like(spread)
    if request.population == "images" and question.gram is not None:
        pairs = spectrum.pair_variance(question.gram)
    needed = forecast.units_needed(contrast.value, spread, pairs, decided.degrees, units)
    needed = np.where(unresolved, needed, np.nan)
    nothing = np.full_like(needed, np.nan)
    images, draws = (needed, nothing) if request.population == "images" else (nothing, needed)
    return {
        "p_safe": p_safe,
        "p_harmful": p_harmful,
        "verdict": decided.verdict,
        "images_needed": images,
        "draws_needed": draws,
    }


def _question(part: Moments, request: Request, arms: list[str]) -> verdict.Question:
    if request.control is not None:
        return verdict.gap(part, request.margin, arms.index(request.control))
    return verdict.RULES[request.rule](part, request.margin)


def check(dataset: xr.Dataset, request: Request) -> None:
    """Raise UsageError for a request that this store cannot answer."""
    arms = dataset["arm"].values.tolist()
    draws = dataset.sizes["draw"]
    if request.baseline not in arms:
        raise UsageError(f"baseline {request.baseline!r} is not an arm of this store; it has {', '.join(arms)}")
    if len(arms) < 2:
        raise UsageError(f"this store has no arm but {request.baseline!r}; probe at least one treatment")
    if request.population not in POPULATIONS:
        raise UsageError(f"population {request.population!r} is not one of {', '.join(POPULATIONS)}")
    if request.rule not in verdict.RULES:
        raise UsageError(f"rule {request.rule!r} is not one of {', '.join(verdict.RULES)}")
    if not (np.isfinite(request.margin) and request.margin > 0.0):
        raise UsageError(f"margin {request.margin:g} is not a positive number")
    if (request.rule == "gap") != (request.control is not None):
        raise UsageError("rule gap needs a control arm (--control), and no other rule takes one")
    if request.control is not None and (request.control not in arms or request.control == request.baseline):
        raise UsageError(f"control {request.control!r} is not a treated arm of this store; it has {', '.join(arms)}")
    if request.rule == "gap" and draws < 2:
        raise UsageError("rule gap needs at least 2 draws per image; probe again with --draws 2 or more")
    if request.population == "corpus" and draws < FEWEST_DRAWS:
        raise UsageError(
            f"population corpus needs {FEWEST_DRAWS} draws per image and this store has {draws}; "
            f"probe again with --draws {FEWEST_DRAWS} or more"
        )
    if request.population == "corpus" and looks_of(dataset) is not None:
        raise Refused(
            "population corpus asks about these very images, and this sweep chose how many to take by what it saw of "
            "them; probe without --until-resolved"
        )
    if request.rule not in TOTALS and looks_of(dataset) is not None:
        raise Refused(
            f"rule {request.rule!r} is not known to err rarely where a sweep stopped by what it saw; ask for "
            f"{', '.join(TOTALS)}, or probe without --until-resolved"
        )
    if request.population == "corpus" and "gram_cross" not in dataset:
        raise UsageError(
            "population corpus needs gram_cross, which this store was written without; probe again with it"
        )


def _labelled(
    dataset: xr.Dataset,
    done: np.ndarray,
    arms: list[str],
    parts: list[dict[str, np.ndarray]],
    request: Request,
    warnings: list[str],
) -> xr.Dataset:
    blocks = [*dataset["block"].values.tolist(), TOTAL]
    coordinates: Mapping[str, object] = {
        "metric": dataset["metric"].values,
        "sigma": dataset["sigma"].values[done],
        "block": blocks,
        "arm": arms,
    }
    variables = {
        name: (("metric", "sigma", "block", "arm"), np.stack([part[name] for part in parts], axis=1))
        for name in parts[0]
    }
    attributes = {
        "baseline": request.baseline,
        "population": request.population,
        "rule": request.rule,
        "margin": request.margin,
        "control": request.control or "",
        "confidence": estimate.CONFIDENCE,
        "level": level_of(looks_of(dataset), request.rule),
        "warnings": json.dumps(warnings),
    }
    used = (("sigma",), dataset["images_used"].values[done])
    return xr.Dataset({**variables, "images_used": used}, coordinates, attributes)
