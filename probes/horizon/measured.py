"""A horizon in memory, of any system: what the command does, without a store.

dataset = measured({0: MySystem(seed=0), 1: MySystem(seed=1)}, ladder("1/4,1/2,1", jitters=8, size=1e-6, steps="32"))
print(assess(dataset).reaches)
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analysis.horizon import schema
from probes.horizon.displacement import cell
from probes.horizon.ladder import Ladder, jitter_name
from probes.horizon.rollout import System, rollout

if TYPE_CHECKING:
    import xarray as xr


def measured(
    systems: Mapping[int, System], ladder: Ladder, about: Mapping[str, str | float] | None = None
) -> "xr.Dataset":
    """The dataset of ``systems``, by seed, as a store holds it."""
    first = next(iter(systems.values()))
    first.begin(ladder.branches[0])
    blocks = list(first.position())
    jitters = [jitter_name(i) for i in range(1, ladder.jitters + 1)]
    dataset = schema.template(list(systems), ladder.steps, blocks, ladder.doses, jitters, about)
    for index, system in enumerate(systems.values()):
        runs = [rollout(system, branch, ladder.steps) for branch in ladder.branches]
        found = cell(lambda run, name, runs=runs: runs[run][name], len(runs), blocks, ladder.steps, len(ladder.doses))
        for name in schema.OF_CELL:
            dataset[name].values[index] = found[name]
        dataset["done"].values[index] = True
    return dataset
