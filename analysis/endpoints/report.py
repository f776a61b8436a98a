"""Pairs as text: a table with a floor column, blocks, growth over checkpoints, and what may be said."""

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.endpoints.pairs import (
    AT_FLOOR,
    BELOW_ONE,
    ENOUGH,
    IDENTICAL,
    NO_FLOOR,
    REFUTED,
    SEPARATED,
    TOO_WIDE,
    TWINS,
    Figure,
    Floor,
    Pair,
)

WIDTH = 80
DETECTOR = (
    "An end point is a detector, never a ruler: it tells that two runs parted, and in which blocks, not how large the "
    "difference between them was. Perturbations do not add in a cosine, and anything that parts two runs for long "
    "enough ends near one value. Size is measured in single steps: probes grad."
)
HOW = (
    "No floor measured, so no verdict: nothing tells this pair from chance. Train both runs with --deterministic in "
    f"one environment, or one of them {ENOUGH} times more with nothing changed (train study: twins = {ENOUGH}), and "
    "compare them all at once."
)
CHANCE = "Each block by itself: of 40 blocks that nothing happened to, twins call one separated."
STEPS_SHOWN = 6
NAMED = 5


def as_text(pairs: Sequence[Pair], treatments: Mapping[str, str], doses: Mapping[str, float], *, blocks: bool) -> str:
    """The whole report, without a final newline. treatments, doses: by run, as far as they are known."""
    parts = [table(pairs, treatments, doses)]
    if blocks:
        parts += [block_table(pair) for pair in pairs]
    else:
        parts += list(filter(None, (blocks_in_words(pairs),)))
    parts += list(filter(None, (growth_table(pairs), notes(pairs), explanations(pairs))))
    parts.append(filled(DETECTOR))
    return "\n\n".join(parts)


def table(pairs: Sequence[Pair], treatments: Mapping[str, str], doses: Mapping[str, float]) -> str:
    """A line a pair, below the run that it is compared with."""
    name = max(len("run"), *(len(pair.b) for pair in pairs))
    arm = max([len("arm"), *(len(treatments.get(pair.b, "")) for pair in pairs)])
    shown_arm = any(treatments.values())
    head = f"  {'run':<{name}}  " + (f"{'arm':<{arm}}  {'dose':>5}  " if shown_arm else "")
    lines = [f"{head}{'cosine':>8}  {'floor':<19}  verdict"]
    for place, pair in enumerate(pairs):
        if not place or pair.a != pairs[place - 1].a:
            lines.append(f"beside {pair.a}")
        dose = doses.get(pair.b)
        told = "-" if dose is None else f"{100 * dose:.0f} %"
        middle = f"{treatments.get(pair.b, ''):<{arm}}  {told:>5}  " if shown_arm else ""
        figure = pair.total
        lines.append(f"  {pair.b:<{name}}  {middle}{number(figure.cosine):>8}  {floor(figure):<19}  {figure.verdict}")
    step = pairs[0].step
    title = f"Displacements dW of adapters compared{f' after {step} steps' if step else ''} (Eq. 15)."
    return "\n".join([filled(title), "", *lines])


def pair_name(pair: Pair) -> str:
    """Of a table's line."""
    return f"{pair.a} ~ {pair.b}"


def number(value: float | None) -> str:
    """A cosine; those that round to 1 are told by their distance from it."""
    if value is None:
        return "none"
    return f"1-{1 - value:.0e}" if 0.99995 <= value < 1 else f"{value:.4f}"


def floor(figure: Figure) -> str:
    """``0.413 > 0.371 (3)``: middle of the twins' cosines, the least expected of one more, and how many they are."""
    match None if figure.verdict == TWINS else figure.floor:
        case None:
            return "1 (certified)" if figure.verdict == SEPARATED else "-"
        case Floor(twins, cosine, None):
            return f"{number(cosine)} (of {twins})"
        case Floor(twins, cosine, lowest):
            return f"{number(cosine)} > {number(lowest)} ({twins})"


def blocks_in_words(pairs: Sequence[Pair]) -> str:
    """How many blocks of each pair have which verdict, and where agreement is least and most."""
    lines = []
    for pair in pairs:
        known = {name: f.cosine for name, f in pair.blocks.items() if f.cosine is not None}
        if not known:
            continue
        counts = Counter(figure.verdict for figure in pair.blocks.values())
        if set(counts) == {IDENTICAL}:
            lines.append(f"  {pair_name(pair)}: every block identical")
            continue
        least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        ends = f"least {number(known[least])} in {least}, most {number(known[most])} in {most}"
        lines.append(textwrap.fill(f"{pair_name(pair)}: {told}; {ends}", WIDTH, **indent()))
    if not lines:
        return ""
    if any(f.floor and f.floor.lowest is not None for pair in pairs for f in pair.blocks.values()):
        lines.append(filled(CHANCE))
    return "\n".join(["Blocks (--blocks lists them):", *lines])


def block_table(pair: Pair) -> str:
    """Every block of one pair, in depth order."""
    width = max(len("block"), *map(len, pair.blocks))
    head = f"  {'block':<{width}}  {'cosine':>8}  {'floor':<20}  verdict"
    rows = [
        f"  {name:<{width}}  {number(figure.cosine):>8}  {floor(figure):<20}  {figure.verdict}"
        for name, figure in pair.blocks.items()
    ]
    return "\n".join([f"{pair_name(pair)}, block by block:", head, *rows])


def growth_table(pairs: Sequence[Pair]) -> str:
    """Separation, 1 - cosine, over checkpoints; empty where there is one."""
    steps = list(pairs[0].growth)
    if len(steps) < 2:
        return ""
    places = sorted({round(i * (len(steps) - 1) / (STEPS_SHOWN - 1)) for i in range(STEPS_SHOWN)})
    shown = [steps[place] for place in places]
    name = max(len("step"), *(len(pair.b) for pair in pairs))
    rows: list[str] = []
    for place, pair in enumerate(pairs):
        if not place or pair.a != pairs[place - 1].a:
            rows.append(f"beside {pair.a}")
        rows.append(f"  {pair.b:<{name}}" + "".join(f"  {separation(pair.growth[step]):>7}" for step in shown))
    head = f"  {'step':<{name}}" + "".join(f"  {step:>7}" for step in shown)
    return "\n".join(["Growth of separation, 1 - cosine:", head, *rows])


def separation(cosine: float | None) -> str:
    """1 - cosine in few characters."""
    if cosine is None:
        return "none"
    return "0" if cosine == 1 else f"{1 - cosine:.1e}" if cosine > 0.999 else f"{1 - cosine:.4f}"


def notes(pairs: Sequence[Pair]) -> str:
    """What else must be known of some pairs."""
    told: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.note:
            told.setdefault(pair.note, []).append(pair_name(pair))
    return "\n".join(filled(f"Note: {note} ({', '.join(names)}).") for note, names in told.items())


def explanations(pairs: Sequence[Pair]) -> str:
    """What the verdicts that occur mean, and what to do."""
    seen = {pair.total.verdict for pair in pairs}
    lines = []
    if SEPARATED in seen or AT_FLOOR in seen:
        lines.append(
            "floor: cosine of twins > the least expected of one more untreated run (95 % prediction interval) (how "
            "many twins); 1 where certificates promise equal bytes."
        )
    if AT_FLOOR in seen:
        lines.append("at the floor: no effect is shown, which does not show that there is none.")
    if TOO_WIDE in seen:
        lines.append("floor too wide: from such twins nothing could be told; train more of them for a verdict.")
    if BELOW_ONE in seen:
        lines.append(f"below one twin: fewer than {ENOUGH} twins tell no spread; train more of them for a verdict.")
    if REFUTED in seen:
        lines.append("certificate refuted: certified twins differ. Find what does not repeat: train certify --fresh.")
    if NO_FLOOR in seen:
        lines.append(HOW)
    return "\n".join(map(filled, lines))


def about_reading(warnings: Sequence[str], unpaired: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines about how files were read; of many modules without a partner the first are named."""
    lines = list(warnings)
    for name, modules in unpaired.items():
        more = f" and {len(modules) - NAMED} more (--json lists them)" if len(modules) > NAMED else ""
        lines.append(f"{name}: not compared, as not every file has them: {', '.join(modules[:NAMED])}{more}")
    return lines


def as_json(pairs: Sequence[Pair], treatments: Mapping[str, str], doses: Mapping[str, float]) -> dict[str, Any]:
    """One object: ``pairs``, each with its figures in total and by block."""
    return {
        "detector_not_ruler": DETECTOR,
        "pairs": [
            {
                "a": pair.a,
                "b": pair.b,
                "arm_a": treatments.get(pair.a) or None,
                "arm_b": treatments.get(pair.b) or None,
                "dose_b": doses.get(pair.b),
                "step": pair.step,
                **figure_json(pair.total),
                "differing_tensors": pair.differing_tensors,
                "note": pair.note or None,
                "blocks": {name: figure_json(figure) for name, figure in pair.blocks.items()},
                "growth": [{"step": step, "cosine": cosine} for step, cosine in pair.growth.items()],
            }
            for pair in pairs
        ],
    }


def figure_json(figure: Figure) -> dict[str, Any]:
    """cosine, norm_a, norm_b, verdict and floor; null where unknown."""
    told = figure.floor
    return {
        "cosine": figure.cosine,
        "norm_a": figure.norm_a,
        "norm_b": figure.norm_b,
        "verdict": figure.verdict,
        "floor": None if told is None else {"twins": told.twins, "cosine": told.cosine, "lowest": told.lowest},
    }


def filled(text: str) -> str:
    """Wrapped to the report's width."""
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def indent() -> dict[str, Any]:
    """For lines of a list."""
    return {"initial_indent": "  ", "subsequent_indent": "    ", "break_long_words": False, "break_on_hyphens": False}
