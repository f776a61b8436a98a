"""The answer as text: the policies that were named, the front, and what may be claimed."""

import math
import textwrap
from collections.abc import Sequence

from analysis.policy.answer import Answer, unit_of
from analysis.report import POPULATIONS, rule_in_words, signed_root

WIDTH = 80
HEADER = "  speed-up  relative bias  95 % interval    cosine  norm ratio  noticed after  {verdict}policy"

LEGEND = (
    "Relative bias is that of the gradient's mean over all sigma, noise and images; -x stands for an estimated square "
    "of -x*x: no bias seen. Noticed after: samples whose noise the bias then exceeds. -: not told from zero. The front "
    "is the best of many estimates, so its biases are somewhat too small."
)


def as_text(answer: Answer) -> str:
    """The whole report, one string without a final newline."""
    parts = [_question(answer)]
    if answer.named:
        parts.append(_table(answer, "Policies that were named (sum over blocks)", answer.named))
    title = f"Front: those of {len(answer.policies)} policies that neither native nor another beats (sum over blocks)"
    parts.append(_table(answer, title, answer.front))
    parts.append(_filled(LEGEND))
    if answer.question.margin is not None:
        parts.append(_claims(answer))
    parts += [_filled(f"Warning: {warning}.") for warning in answer.warnings]
    return "\n\n".join(parts)


def _question(answer: Answer) -> str:
    question = answer.question
    lines = [
        f"Expected gradient of a training run, metric {answer.metric}: sigma sampler {question.sampler}, of which the "
        f"grid covers {100 * (1 - answer.share.uncovered):.1f} %; {answer.images} images x {answer.draws} draws, "
        f"{answer.units} independent units (each a {unit_of(answer)}).",
        f"Population: {POPULATIONS[question.population]}. Cost in {question.cost}.",
    ]
    if question.samples > 1:
        lines.append(f"A step has {question.samples} samples, and is treated where one window holds them all.")
    if question.margin is not None:
        asked = rule_in_words(question.rule, question.margin, "", question.baseline)
        lines.append(f"{asked} (rule {question.rule}, margin {question.margin:g})")
    return "\n".join(map(_filled, lines))


def _table(answer: Answer, title: str, names: Sequence[str]) -> str:
    verdicts = answer.question.margin is not None
    lines = [title, HEADER.format(verdict="verdict     " if verdicts else "")]
    for name in names:
        row = answer.total.sel(policy=name)
        lower, upper = (signed_root(row[end].item()) for end in ("lower", "upper"))
        interval = "unresolved" if math.isnan(lower) else f"{lower:.3f} to {upper:.3f}"
        verdict = f"{row['verdict'].item():<12}" if verdicts else ""
        lines.append(
            f"  {row['speed_up'].item():<8.3f}  {_shown(signed_root(row['relative_bias_squared'].item()), '.3f'):<13}  "
            f"{interval:<15}  {_shown(row['cosine'].item(), '.4f'):<6}  {_shown(row['norm_ratio'].item(), '.3f'):<10}  "
            f"{_shown(row['samples_to_notice'].item(), ',.0f'):<13}  {verdict}{name}"
        )
    return "\n".join(lines)


def _claims(answer: Answer) -> str:
    lines = []
    for arm, names in answer.safe.items():
        told = f"safe down to {names[-1]}" if names else "not shown to be safe at any threshold"
        lines.append(f"  {arm}: {told}")
    picked = answer.picked
    if picked is None:
        slow = any(answer.safe.values())
        last = (
            "No policy that is shown to be safe is faster than native."
            if slow
            else "No policy is shown to be safe in total and in every block."
        )
    else:
        last = (
            f"Fastest that is safe in total and in every block: {picked} "
            f"(expected speed-up {answer.total['speed_up'].sel(policy=picked).item():.3f})."
        )
    first = (
        "Thresholds of each arm, tested from the top down in total and in every block, until one is not safe, at level "
        f"2.5 % / {max(1, len(answer.safe))} each; with 95 % confidence all of these are safe. A verdict in the tables "
        "is of one policy alone, and in total."
    )
    return "\n".join([_filled(first), *lines, _filled(last)])


def _shown(value: float, form: str) -> str:
    if math.isnan(value):
        return "-"
    return "never" if math.isinf(value) else format(value, form)


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
