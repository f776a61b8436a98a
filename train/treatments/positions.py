"""Treatments of a step's rotary positions: ``rope:pi``, ``rope:yarn``, ``rope:yarn-sigma``."""

from train.rope import KINDS, Stretch
from train.treatments.treatment import Treatment, bad, number


def _rope(argument: str | None) -> Treatment:
    """``rope:pi|yarn|yarn-sigma``: positions stretched to the native extent; ``rope:pi:1.1``: by that factor."""
    takes = f"{', '.join(KINDS)}, each with an optional factor such as pi:1.1"
    kind, colon, factor = (argument or "").partition(":")
    if kind not in KINDS:
        raise bad("rope", argument, takes)
    by = number("rope", factor, takes) if colon else None
    if by is not None and by <= 0:
        raise bad("rope", argument, takes)
    term = f"rope:{argument}"
    return Treatment(term, "positions", lambda plan: plan.set(term, stretch=Stretch(kind, by)))


TERMS = {"rope": _rope}
