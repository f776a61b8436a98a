"""``analysis policy``: open, answer, print, draw, write."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from analysis import store
from analysis.commands import DEFAULT_MARGINS
from analysis.errors import Refused, UsageError
from analysis.policy.answer import Answer, Question, as_json
from analysis.policy.answering import answered
from analysis.policy.report import as_text
from analysis.policy.written import write
from analysis.safety import POPULATIONS
from analysis.steps import at_step

RULES = ("relative", "angle")
NATIVE = "native"


@dataclass(frozen=True)
class Asked:
    """The options of ``analysis policy``, as they were given; without rule and margin no verdict is asked for."""

    policies: tuple[str, ...] = ()
    sampler: str = "uniform"
    cost: str = "seconds"
    population: str = "images"
    rule: str | None = None
    margin: float | None = None
    samples: int = 1
    baseline: str = "native"
    metric: str | None = None
    step: int | None = None


def print_policy(path: Path, asked: Asked, *, json_object: bool, png: Path | None, toml: Path | None) -> int:
    """Print the answer, draw and write it. Refused, at the end, where a policy was to be written and there is none."""
    question = question_of(asked)
    if toml is not None and asked.baseline != NATIVE:
        raise UsageError(
            f"--write with --baseline {asked.baseline}: a run makes the native step outside a policy's windows, so "
            "its figures would be of another policy; leave --baseline out"
        )
    answer = answered(
        at_step(store.open_store(path, contents=False), asked.step), question, asked.policies, asked.metric
    )
    files = {}
    if png is not None:
        draw(answer, png)
        files["Front"] = str(png)
    chosen = to_write(answer)
    if toml is not None and chosen is not None:
        write(toml, answer, chosen)
        files["Policy"] = str(toml)
    if json_object:
        print(json.dumps(as_json(answer, files), indent=1, allow_nan=False))
    else:
        print(as_text(answer))
        print("".join(f"\n{name + ':':<8} {file}" for name, file in files.items()), end="\n" if files else "")
    sys.stdout.flush()
    if toml is not None and chosen is None:
        raise Refused(f"{toml} is not written: {why_none(answer)}")
    return 0


def question_of(asked: Asked) -> Question:
    """With the defaults filled in. UsageError for a value that is not allowed."""
    if asked.population not in POPULATIONS:
        raise UsageError(f"population {asked.population!r} is not one of {', '.join(POPULATIONS)}")
    rule, margin = asked.rule or "relative", asked.margin
    if rule not in RULES:
        raise UsageError(f"rule {rule!r} is not one of {', '.join(RULES)}, the rules for policies")
    if margin is None and asked.rule is not None:
        margin = DEFAULT_MARGINS[rule]
    most = 2.0 if rule == "angle" else float("inf")
    if margin is not None and not 0.0 < margin < most:
        raise UsageError(f"margin {margin:g}: rule {rule} takes a number above 0" + (", below 2" if most == 2 else ""))
    return Question(asked.sampler, asked.cost, asked.population, rule, margin, asked.baseline, asked.samples)


def to_write(answer: Answer) -> str | None:
    """The policy that was picked; without verdicts the one that was named."""
    if answer.question.margin is not None:
        return answer.picked
    return answer.named[0] if len(answer.named) == 1 else None


def why_none(answer: Answer) -> str:
    """Why there is no policy to write."""
    margin = answer.question.margin
    if margin is None:
        return "give --margin to have a policy picked, or name one by --policy"
    if any(answer.safe.values()):
        return f"no policy that is shown to be safe at margin {margin:g} is faster than native"
    return f"no policy is shown to be safe in total and in every block at margin {margin:g}; probe more images"


def draw(answer: Answer, png: Path) -> None:
    """The front as a picture."""
    from analysis import picture
    from analysis.policy.plots import front_figure

    picture.write(front_figure(answer), png)
