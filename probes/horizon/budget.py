"""What a horizon takes, from two timed steps: ``probes horizon --dry-run``."""

import json
from dataclasses import asdict, dataclass
from time import perf_counter

from probes.horizon.ladder import Branch
from probes.horizon.settings import Settings
from probes.horizon.training import Training

FLOAT32 = 4


@dataclass(frozen=True)
class Budget:
    """Counts, bytes and seconds of wall-clock time."""

    runs: int
    steps: int
    gradients: int
    processes: int
    disk: int  # of runs that are kept until their seed is complete
    seconds: float

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds), 60)
        return "\n".join(
            [
                f"runs       {self.runs}, of {self.steps} steps",
                f"gradients  {self.gradients:,}",
                f"processes  {self.processes}",
                f"disk       {self.disk / 2**30:.3f} GiB of positions while it runs, at most",
                f"time       {minutes} min {seconds} s, and a model to load in each process",
            ]
        )


def print_budget(settings: Settings, systems: list[Training], processes: int, *, json_object: bool) -> None:
    """Time a native and a treated gradient, and scale."""
    ladder, branches = settings.ladder, settings.ladder.branches
    last, parts = ladder.steps[-1], [branch.dose for branch in branches if 0 < branch.dose < 1]
    treated = sum(int(system.treated.schedule.treated.sum()) for system in systems)
    native_seconds, treated_seconds = (seconds(systems[0], dose) for dose in (0.0, 1.0))
    native = len(branches) * last * len(systems) - (treated if 1.0 in ladder.doses.values() else 0)
    extra = treated * (len(parts) + (1.0 in ladder.doses.values()))
    position = sum(p.numel() for p in systems[0].native.parameters.values()) * FLOAT32
    found = Budget(
        runs=len(branches) * len(systems),
        steps=last,
        gradients=native + extra,
        processes=processes,
        disk=position * (len(ladder.steps) + 1) * len(branches) * len(systems),
        seconds=(native * native_seconds + extra * treated_seconds) / processes,
    )
    print(json.dumps(asdict(found)) if json_object else str(settings_line(settings)) + f"\n{found}")


def settings_line(settings: Settings) -> str:
    """What would be run."""
    ladder = settings.ladder
    return (
        f"arm {settings.train.arm}, {settings.start} start, learning rate {settings.train.learning_rate:g}: doses "
        f"{', '.join(ladder.doses)}, {ladder.jitters} jitters of {ladder.size:g}, "
        f"steps {', '.join(map(str, ladder.steps))}"
    )


def seconds(system: Training, dose: float) -> float:
    """Of one gradient, after a warm-up."""
    step = int(system.treated.schedule.treated.argmax())
    system.begin(Branch("timed"))
    system.mixed(step, dose)
    started = perf_counter()
    system.mixed(step, dose)
    return perf_counter() - started
