"""A policy as a file that ``train --policy`` takes."""

import json
from pathlib import Path

from analysis.atomic import replacing
from analysis.policy.answer import Answer


def write(path: Path, answer: Answer, name: str) -> None:
    """What decides a run's expected gradient, as settings of ``train``, and where they come from.

    ``samples`` of a step (batch size x accumulation) is no setting: ``train --policy`` compares it with the run's.
    """
    question, figures = answer.question, answer.total.sel(policy=name)
    bias = figures["relative_bias_squared"].item()
    told = [
        "# Written by analysis policy; train --policy takes it.",
        f"# Expected speed-up {figures['speed_up'].item():.3f} by {question.cost}, squared relative bias {bias:.3g} "
        f"[{figures['lower'].item():.3g}, {figures['upper'].item():.3g}], population {question.population}.",
    ]
    if question.margin is not None:
        told.append(f"# Safe in total and in every block: rule {question.rule}, margin {question.margin:g}.")
    settings = {"arm": name, "sigma_sampler": question.sampler, "weighting": "none", "samples": question.samples}
    lines = [*told, *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())]
    with replacing(path) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
