"""Treatments: one change to a step each, at its input, positions, execution or gradient.

``treatment("demote:56")`` parses one term of an arm. Other packages add terms through the entry
point group ``sigma_probes.treatments``: a name, and a function from the text after the colon (None
when there is none) to a ``Treatment``.
"""

from collections.abc import Callable
from importlib.metadata import entry_points

from analysis.errors import UsageError
from train.treatments import execution, gradient, input, positions
from train.treatments.treatment import Treatment

__all__ = ["Treatment", "terms", "treatment"]

Parser = Callable[[str | None], Treatment]


def terms() -> dict[str, Parser]:
    """Every known term by name, those of other packages included."""
    own: dict[str, Parser] = {**input.TERMS, **positions.TERMS, **execution.TERMS, **gradient.TERMS}
    for point in entry_points(group="sigma_probes.treatments"):
        if point.name in own:
            raise UsageError(f"treatment {point.name}: {point.value} would replace a term that exists; rename it")
        own[point.name] = point.load()
    return own


def treatment(term: str) -> Treatment:
    """The treatment that one term of an arm describes."""
    name, colon, argument = term.strip().partition(":")
    if not name:
        raise UsageError(f"arm term '{term}': empty; write terms such as demote:56 joined by single +")
    known = terms()
    if name not in known:
        raise UsageError(f"arm term '{term}': unknown treatment '{name}'; known: {', '.join(sorted(known))}")
    return known[name](argument if colon else None)
