"""The answer over training as text: an arm's table step by step, and its windows at each step."""

from analysis import report
from analysis.over_training.answers import Answers


def as_text(found: Answers, *, colour: bool = False) -> str:
    """The whole report, one string without a final newline."""
    arms = [str(arm) for arm in found.first.assessed["arm"].values]
    steps = f" at each of {len(found.by_step)} checkpoints (after {', '.join(map(str, found.by_step))} steps)"
    parts = [report.question(found.first, steps)]
    parts += [_table(found, arm, colour) for arm in arms]
    parts += [report.legend(found.first), _windows(found, arms), _worst_blocks(found)]
    if found.warnings:
        parts.append("\n".join(report.filled(f"Warning: {warning}.") for warning in found.warnings))
    if found.decision is not None:
        parts.append(report.gate_in_words(found.decision, colour))
    return "\n\n".join(parts)


def _table(found: Answers, arm: str, colour: bool) -> str:
    lines = report.table_head(found.first, arm)
    for step, answer in found.by_step.items():
        lines += [f"step {step}", *report.rows(answer, arm, colour)]
    return "\n".join(lines)


def _windows(found: Answers, arms: list[str]) -> str:
    lines = ["Windows of sigma"]
    for arm in arms:
        lines.append(f"  {arm}")
        for step, answer in found.by_step.items():
            total = f"{report.ranges(answer.safe, arm, 'safe')}; {report.ranges(answer.harmful, arm, 'harmful')}"
            every = report.ranges(answer.safe_in_every_block, arm, "safe")
            lines.append(report.filled(f"step {step}: {total}; in every block: {every}", indent=4))
    claim = f"{report.CLAIM} Each step's list is a claim of its own."
    return "\n".join([*lines, report.filled(claim)])


def _worst_blocks(found: Answers) -> str:
    lines = ["Block by block: the largest bias"]
    for step, answer in found.by_step.items():
        lines += [f"  step {step}", *(report.filled(line, indent=4) for line in report.worst(answer))]
    return "\n".join(lines)
