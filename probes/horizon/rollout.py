"""One run from the start, and where it was after the steps that are looked at."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from probes.horizon.ladder import Branch

Array = np.ndarray
START, TREATED = "0", "treated"


class System(Protocol):
    """What can be rolled out. Runs of one seed share every draw, so they differ by their branch alone."""

    def begin(self, branch: Branch) -> None:
        """Go to the start, moved by the branch's jitter if it has one."""
        ...

    def advance(self, step: int, branch: Branch) -> bool:
        """Take ``step``, from 0, with the branch's dose; answers whether the treatment has a part in that step."""
        ...

    def position(self) -> Mapping[str, Array]:
        """Parameters by block, one-dimensional copies, the same blocks at every step."""
        ...


def rollout(
    system: System, branch: Branch, steps: Sequence[int], progress: Callable[[int], None] = lambda _: None
) -> dict[str, Array]:
    """Positions as ``STEP/BLOCK``, the start's with step 0, and ``treated``: treated steps up to each of ``steps``."""
    system.begin(branch)
    found = named(START, system.position())
    treated, counts = 0, []
    for step in range(steps[-1]):
        treated += system.advance(step, branch)
        progress(1)
        if step + 1 in steps:
            found |= named(str(step + 1), system.position())
            counts.append(treated)
    return found | {TREATED: np.array(counts, np.int64)}


def named(step: str, position: Mapping[str, Array]) -> dict[str, Array]:
    """Blocks by ``STEP/BLOCK``."""
    return {f"{step}/{block}": values for block, values in position.items()}
