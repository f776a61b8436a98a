"""A horizon as text: a table of separation and non-linearity, how far the ruler reaches, how fast runs part."""

import textwrap
from collections.abc import Iterator
from math import log

import numpy as np

from analysis.horizon.answer import Answer, over_seeds
from analysis.horizon.growth import ABOVE_FLOOR, BELOW_SATURATION, SATURATION, Growth
from analysis.horizon.reach import LIMIT, Reach, interval
from analysis.schema import TOTAL

WIDTH = 96
COLD = (
    "A cold start: up is 0 and Adam's first updates are nearly sign(g), so doses do not add from the first step on. "
    "That bend is the optimiser's, not chaos; a warm start has far less of it."
)
MEANING = (
    "Up to the horizon the separation of two runs measures the dose of what differs between them; beyond it, it only "
    "tells that something does."
)
OF_JITTERS = " A jitter that has grown as far as a dose is what any difference becomes."


def as_text(answer: Answer) -> str:
    """The whole report, without a final newline."""
    parts = [title(answer), table(answer), *seeds_that_count(answer), reach_lines(answer)]
    if answer.growth is not None:
        parts.append(filled(growth_line(answer.growth, answer.figures["seed"].values.tolist())))
    if answer.about.get("start") == "cold":
        parts.append(filled(COLD))
    return "\n\n".join([*parts, filled(MEANING + OF_JITTERS * (answer.growth is not None))])


def title(answer: Answer) -> str:
    """What was run, in a line."""
    return filled(
        f"{answer.setting}. Separation of runs over the baseline's displacement (Eq. 13), non-linearity in dose "
        "(Eq. 14): geometric means over seeds, in the space of the adapter's parameters."
    )


def table(answer: Answer) -> str:
    """A line for each step."""
    figures = answer.figures.sel(block=TOTAL)
    doses = [n for n, d in zip(figures["arm"].values, figures["arm_dose"].values, strict=True) if d > 0]
    jitters = answer.jitter_separation()
    columns = [over_seeds(figures["separation"].sel(arm=name))[0] for name in doses]
    heads = [f"sep {name}" for name in doses]
    columns += [over_seeds(figures["nonlinearity"].sel(dose=name))[0] for name in answer.doses]
    heads += [f"NL {name}" for name in answer.doses]
    if jitters.size:
        columns.append(interval(jitters)[0])
        heads.append("jitter")
    columns.append(over_seeds(figures["floor"])[0])
    heads.append("floor")
    width = max(8, *map(len, heads))
    lines = [f"{'step':>6} {'treated':>8} " + " ".join(f"{head:>{width}}" for head in heads)]
    for place, step in enumerate(answer.steps):
        treated = f"{figures['treated'].values[:, place].mean():.1f}"
        cells = " ".join(f"{shown(column[place]):>{width}}" for column in columns)
        lines.append(f"{step:>6} {treated:>8} {cells}")
    return "\n".join(lines)


def seeds_that_count(answer: Answer) -> Iterator[str]:
    """Which means are of some of the seeds alone."""
    treated = answer.figures["treated"].values > 0
    partly = [
        f"{of_step.sum()} at step {step}"
        for step, of_step in zip(answer.steps, treated.T, strict=True)
        if of_step.any() and not of_step.all()
    ]
    if partly:
        yield filled(f"Separations and NL are of the seeds with a treated step by then: {', '.join(partly)}.")


def shown(value: float) -> str:
    """Two digits or more; - where nothing is known."""
    if not np.isfinite(value):
        return "-"
    return f"{value:.4f}" if 0.001 <= value < 1000 else f"{value:.1e}"


def reach_lines(answer: Answer) -> str:
    """The horizon of every dose, in total, and where blocks differ from it."""
    lines = [f"Ruler horizon, the last step before NL first reaches {LIMIT:g}:"]
    for dose in reversed(answer.doses):
        found = answer.reaches[TOTAL][dose]
        saturated = answer.saturated[dose]
        after = f"; saturated from step {saturated}" if saturated is not None else ""
        lines.append(f"  dose {dose}: {horizon(found)}{after}")
    by_block = {block: of[answer.full].horizon for block, of in answer.reaches.items() if block != TOTAL}
    least = min(by_block, key=lambda block: by_block[block].step)
    most = max(by_block, key=lambda block: (by_block[block].step, by_block[block].open))
    same = by_block[least] == by_block[most]
    ends = f"{by_block[least]} in every one" if same else f"{by_block[least]} in {least} to {by_block[most]} in {most}"
    lines.append(f"  blocks at dose {answer.full}: {ends}")
    return "\n".join([*lines, *(filled(line) for line in unknown(answer))])


def unknown(answer: Answer) -> Iterator[str]:
    """Why a non-linearity is not told: rounding could make it, or no dose moved anything."""
    figures = answer.figures.sel(block=TOTAL)
    if not (figures["separation"].values[:, :, 1:] > 0).any():
        yield "No dose moved a run away from the baseline: there is nothing to measure."
    elif figures["blurred"].values.any():
        steps = figures["step"].values[figures["blurred"].values.any(axis=(0, 2))]
        listed = ", ".join(map(str, steps))
        yield (
            f"A '-' of NL at step {listed}: float32 rounding alone could make half of {LIMIT:g} there. A larger "
            "learning rate or larger doses tell it."
        )


def horizon(found: Reach) -> str:
    """``16 (95 %: 8 to 32; by seed 16, 16, 32)``."""
    by_seed = ", ".join(map(str, found.by_seed))
    if found.lower is None or found.upper is None:
        return str(found.horizon)
    return f"{found.horizon} (95 %: {found.lower} to {found.upper}; by seed {by_seed})"


def growth_line(found: Growth, seeds: list[int]) -> str:
    """How fast jitters grew, and over which steps."""
    where = f"between {ABOVE_FLOOR:g} x the floor and {BELOW_SATURATION * SATURATION:.2f}"
    if found.rate is None or found.error is None:
        advice = (
            "jitters are beyond it from the first step on; give a smaller --jitter-size"
            if found.too_large
            else "look at more steps (--steps 1,2,3,4,6,8)"
        )
        return f"Growth of the distance of jitters: not known, no seed has three steps {where}; {advice}."
    spread = "" if found.lower is None else f", over seeds {found.lower:.3g} to {found.upper:.3g} (95 %)"
    fitted = ", ".join(
        f"seed {seed} steps {use[0]} to {use[1]}" for seed, use in zip(seeds, found.fitted, strict=True) if use
    )
    clear = found.rate > 2 * found.error
    double = f"; the distance doubles in {log(2) / found.rate:.1f} steps" if clear else ""
    rate = f"{found.rate:.3g} +- {found.error:.2g} per step"
    return (
        f"Growth of the distance of jitters: {rate}{spread}{double}. Fitted {where}: {fitted}. "
        "(In the table it is over the baseline's displacement, which grows too.)"
    )


def filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
