"""How often do the intervals of marks hold the truth?

    rates = coverage(repeats=600)
    rates["multiple", "corpus", "heavy"]       # [(covered, unresolved)] of each world

A multiple of a mark (Eq. 23) whose bias is three times the mark's, and the jitter that changes a gradient as much (Eq.
25). `python -m analysis.calibration --marks` prints what docs/method.md says of them.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from analysis import moments, synthetic
from analysis.calibration.cases import HEAVY
from analysis.estimate import Figure
from analysis.marks.sizes import jitter_squared, times_squared
from analysis.synthetic import Draws, Planted

BIASES = (0.3, 0.1)
"""Relative bias of the arm, and of the mark."""
DESIGNS = {"images": ((8, 4), (24, 2)), "corpus": ((8, 4),)}
"""Images and draws."""
DIRECTIONS = ("leading", "across", "mixed")
NOISE = (1.0, 5.0)
TAILS = {"light": 0.0, "heavy": HEAVY}

Rates = dict[tuple[str, str, str], list[tuple[float, float]]]


def coverage(*, repeats: int) -> Rates:
    """By figure, population and tails: for each world how often the interval covers, or is unresolved."""
    rates: Rates = {}
    for seed, (population, tails, direction, noise) in enumerate(product(DESIGNS, TAILS, DIRECTIONS, NOISE)):
        world = Planted(
            synthetic.power_law(1.0, 48), noise_scale=noise, difference=0.1, direction=direction, tail=TAILS[tails]
        )
        for design in DESIGNS[population]:
            drawn = draw(world, population, *design, repeats=repeats, seed=seed)
            for name, found, truth in figures(world, population, drawn):
                rates.setdefault((name, population, tails), []).append(covered(found, truth))
    return rates


def draw(world: Planted, population: str, images: int, draws: int, *, repeats: int, seed: int) -> Draws:
    """Gradients of the baseline, the arm and the mark."""
    generator = np.random.default_rng(seed)
    sizes = {"repeats": repeats, "images": images, "draws": draws}
    return synthetic.sample(
        world, generator, **sizes, fixed_corpus=population == "corpus", relative_biases=list(BIASES)
    )


def figures(world: Planted, population: str, drawn: Draws) -> Iterator[tuple[str, Figure, float]]:
    """Name, intervals of all repeats and truth. The jitter of exactly these images has another truth in each repeat."""
    image, draw, cross = synthetic.gram_arrays(drawn.gradients)
    if population == "corpus":
        part = moments.corpus(image, draw, cross, baseline=0, arms=[1, 2])
    else:
        part = moments.images(image, draw, baseline=0, arms=[1, 2])
        change = BIASES[0] ** 2 + world.difference**2 * world.noise_scale
        yield "jitter", jitter_squared(draw, 0, 1, population=population), change / (1.0 + world.noise_scale)
    yield "multiple", times_squared(part, 0, 1), (BIASES[0] / BIASES[1]) ** 2


def covered(found: Figure, truth: float) -> tuple[float, float]:
    """Share of intervals that hold ``truth``, unresolved ones among them, and of those that are unresolved."""
    unresolved = np.isnan(found.lower)
    holds = unresolved | ((found.lower <= truth) & (truth <= found.upper))
    return float(holds.mean()), float(unresolved.mean())


def table(rates: Rates) -> str:
    """Markdown: the lowest and highest coverage over worlds, and the most that are unresolved."""
    lines = ["| figure | population | tails | worlds | covers, % | unresolved, up to % |", "|---|---|---|---|---|---|"]
    for (name, population, tails), found in rates.items():
        shares, unresolved = (100.0 * np.array(part) for part in zip(*found, strict=True))
        between = f"{shares.min():.0f} to {shares.max():.0f}"
        lines.append(f"| {name} | {population} | {tails} | {len(found)} | {between} | {unresolved.max():.0f} |")
    return "\n".join(lines)
