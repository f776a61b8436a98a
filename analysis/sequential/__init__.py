"""Verdicts under repeated looks: a sweep may stop as soon as its verdict is settled, and errs no more often for it.

    looks = Looks.equally_spaced(images=64, number=4)
    looks.counts, looks.level("relative")      # (16, 32, 48, 64), 0.0193

Pocock's rule: one nominal level for every look, so low that false verdicts over all of them together stay below
``TOTALS`` (docs/method.md, section 6, "Repeated looks").
"""

from analysis.sequential.boundary import TOTAL, crossing, nominal_level
from analysis.sequential.looks import TOTALS, Looks
from analysis.sequential.repeated import SETTING, looks_of, repeated_p
from analysis.sequential.stopping import Stopping, check_rule

__all__ = [
    "SETTING",
    "TOTAL",
    "TOTALS",
    "Looks",
    "Stopping",
    "check_rule",
    "crossing",
    "looks_of",
    "nominal_level",
    "repeated_p",
]
