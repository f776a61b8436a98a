"""Treatments of a step's execution: its precision and its attention kernel."""

from train.attention import BACKENDS
from train.treatments.treatment import Treatment, bad

DTYPES = ("bf16", "fp16", "fp32")


def _dtype(argument: str | None) -> Treatment:
    """``dtype:bf16|fp16|fp32``: the step under autocast."""
    if argument not in DTYPES:
        raise bad("dtype", argument, " or ".join(DTYPES))
    term = f"dtype:{argument}"
    return Treatment(term, "execution", lambda plan: plan.set(term, dtype=argument))


def _attention(argument: str | None) -> Treatment:
    """``attention:sdpa|flash|math|racing``: another attention kernel."""
    if argument not in BACKENDS:
        raise bad("attention", argument, " or ".join(BACKENDS))
    term = f"attention:{argument}"
    return Treatment(term, "execution", lambda plan: plan.set(term, attention=argument))


TERMS = {"dtype": _dtype, "attention": _attention}
