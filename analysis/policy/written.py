"""A policy as a file that ``train --policy`` takes."""

import json
from pathlib import Path

from analysis.atomic import replacing
from analysis.policy.answer import Answer


def write(path: Path, answer: Answer, name: str) -> None:
    """Two settings of a training run, the arm with its routes and the sampler of sigma, and where they come from."""
    question, figures = answer.question, answer.total.sel(policy=name)
    bias = figures["relative_bias_squared"].item()
    told = [
        "# Written by analysis policy; train --policy takes it.",
        f"# Expected speed-up {figures['speed_up'].item():.3f} by {question.cost}, squared relative bias {bias:.3g} "
        f"[{figures['lower'].item():.3g}, {figures['upper'].item():.3g}], population {question.population}.",
    ]
    if question.margin is not None:
        told.append(f"# Safe in total and in every block: rule {question.rule}, margin {question.margin:g}.")
    if question.samples > 1:
        told.append(f"# For {question.samples} samples a step (batch size x accumulation).")
    settings = {"arm": name, "sigma_sampler": question.sampler}
    lines = [*told, *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())]
    with replacing(path) as partial:
        partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
