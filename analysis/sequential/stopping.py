"""When does a cell that grows image by image stop? When the verdict on every arm that matters is settled.

stopping = Stopping(Looks.equally_spaced(24, 4), arms=("demote:56",), margin=0.2)
stopping.settled(gram_image, gram_draw, ["native", "redraw", "demote:56"])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from analysis import moments, verdict
from analysis.errors import UsageError
from analysis.sequential.looks import TOTALS, Looks


def check_rule(rule: str) -> None:
    """UsageError for one whose verdicts may not stop a sweep."""
    if rule not in TOTALS:
        raise UsageError(
            f"rule {rule!r} cannot stop a sweep; {', '.join(TOTALS)} can, which are known to err rarely under "
            "repeated looks: take one of them, or leave --until-resolved out"
        )


@dataclass(frozen=True)
class Stopping:
    """arms: whose verdicts end a cell, about the sum over blocks and in every metric; margin: in the rule's unit."""

    looks: Looks
    arms: tuple[str, ...]
    margin: float
    rule: str = "relative"
    baseline: str = "native"

    def __post_init__(self) -> None:
        check_rule(self.rule)
        if not 0.0 < self.margin < float("inf"):
            raise UsageError(f"margin {self.margin:g} is not a positive number")

    def settled(
        self,
        gram_image: Float[np.ndarray, "metric block arm n arm_2 n"],
        gram_draw: Float[np.ndarray, "metric block n arm draw arm_2 draw"],
        arms: Sequence[str],
    ) -> bool:
        """Whether no verdict is open on the first n images; of an arm that makes the baseline's step there is none."""
        image, draw = gram_image.sum(1), gram_draw.sum(1)
        places = [arms.index(arm) for arm in self.arms]
        part = moments.images(image, draw, baseline=arms.index(self.baseline), arms=places)
        question = verdict.RULES[self.rule](part, self.margin)
        found = verdict.decide(question, part.baseline, level=self.looks.level(self.rule)).verdict
        idle = (np.diagonal(part.bias_gram, axis1=-2, axis2=-1) == 0.0).all(-1)
        return bool(((found != verdict.UNRESOLVED) | idle).all())

    def as_setting(self) -> Mapping[str, Any]:
        """What a store says of it."""
        return {
            "looks": list(self.looks.counts),
            "arms": list(self.arms),
            "rule": self.rule,
            "margin": self.margin,
        }
