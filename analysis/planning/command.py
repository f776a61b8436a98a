"""``probes plan`` once there is a pilot's store: open, plan, print. It needs no model."""

import json
from pathlib import Path

from analysis import store
from analysis.commands import DEFAULT_MARGINS
from analysis.errors import UsageError
from analysis.planning.pilot import Asked, Planned, plan
from analysis.planning.report import as_json, as_text
from analysis.steps import at_step
from analysis.verdict import RULES


def margin_of(rule: str, margin: float | None) -> float:
    """The margin that is asked for, or the rule's default. UsageError for no rule, or one that needs a margin."""
    if rule not in RULES:
        raise UsageError(f"rule {rule!r} is not one of {', '.join(RULES)}")
    given = DEFAULT_MARGINS.get(rule) if margin is None else margin
    if given is None:
        raise UsageError(f"rule {rule!r} has no default margin: give --margin in its unit")
    if not 0.0 < given < float("inf"):
        raise UsageError(f"margin {given:g} is not a positive number")
    return given


def print_plan(
    path: Path, asked: Asked, *, step: int | None = None, json_object: bool = False, png: Path | None = None
) -> None:
    """Print what the pilot at ``path`` says, and draw it where ``png`` asks. UsageError for what it cannot tell."""
    planned = plan(at_step(store.open_store(path), step), asked)
    if png is not None:
        draw(planned, png)
    if json_object:
        print(json.dumps({"store": str(path), **as_json(planned)}, indent=1, allow_nan=False))
    else:
        print(as_text(planned))


def draw(planned: Planned, png: Path) -> None:
    """The figure as a PNG."""
    from analysis import picture
    from analysis.planning.plots import plan_figure

    picture.write(plan_figure(planned), png)
