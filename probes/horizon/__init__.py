"""How far the ruler reaches: training runs of one start that differ in the dose of a treatment (docs/method.md, 11).

    ladder         which runs: a baseline, doses that double, jitters of the baseline's start
    start          the state they all begin from
    training       the trainer's own step, with a part of the treatment's gradient mixed in
    rollout        one run, and where it was after which steps
    displacement   inner products of what the runs of one seed did
    kept           runs on disk until their seed is complete
    command        the job, on one screen

A system of your own goes through the same, in memory: ``measured``.
"""

from probes.horizon.ladder import Ladder, ladder
from probes.horizon.measured import measured
from probes.horizon.rollout import System

__all__ = ["Ladder", "System", "ladder", "measured"]
