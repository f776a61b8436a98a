"""Everything that ``probes horizon`` is asked for, resolved: the trainer's settings and the ladder."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.errors import UsageError
from probes.horizon.ladder import Ladder, ladder
from probes.horizon.start import adapter_for
from train import settings as training_settings
from train.settings import Settings as TrainSettings

MOST_SEEDS = 1000
ARM = "repromote:56@0.5"
"""The default: a loss of detail, whose full dose a small learning rate keeps in the linear range on the mini model."""
NOT_NUMBERS = ("model", "latents", "adapter", "threads", "checkpoint_every", "format")
"""Settings of the trainer that go by hashes or the environment, or change no number here."""


@dataclass(frozen=True)
class Settings:
    """train: of every run, at the first seed; start: warm or cold; seeds: consecutive ones, from the trainer's on."""

    train: TrainSettings
    ladder: Ladder
    start: str
    seeds: int

    def numbers(self) -> dict[str, Any]:
        """What can change a number, for the store's provenance."""
        trained = {name: value for name, value in asdict(self.train).items() if name not in NOT_NUMBERS}
        climbed = asdict(self.ladder)
        return {**trained, **{f"ladder {name}": value for name, value in climbed.items()}, "start": self.start,
                "seeds": self.seeds}  # fmt: skip


def resolve(
    given: dict[str, Any],
    *,
    config: Path | None,
    start: str,
    seeds: int,
    doses: str,
    jitters: int,
    jitter_size: float,
    steps: str,
) -> Settings:
    """The settings of the options; ``given`` are the trainer's own, None where the file or the default decides."""
    if not 1 <= seeds <= MOST_SEEDS:
        raise UsageError(f"--seeds {seeds}: takes 1 to {MOST_SEEDS}")
    of_file = {} if config is None else training_settings.read(config)
    check_file(config, of_file)
    if given.get("arm") is None and "arm" not in of_file:
        given = {**given, "arm": ARM}
    climbed = ladder(doses, jitters=jitters, size=jitter_size, steps=steps)
    named = training_settings.resolve(config, given)
    adapter = adapter_for(start, named.adapter, named.model)
    fixed = {"adapter": adapter, "steps": climbed.steps[-1], "deterministic": True, "threads": named.threads or 1}
    return Settings(training_settings.resolve(config, given | fixed), climbed, start, seeds)


def check_file(config: Path | None, of_file: dict[str, Any]) -> None:
    """UsageError for a setting of the file that a horizon has from elsewhere."""
    if of_file.get("deterministic") is False:
        raise UsageError(f"{config}: deterministic = false; a horizon takes runs that repeat to the byte: take it out")
    if "steps" in of_file:
        raise UsageError(f"{config}: steps; those of a horizon are a ladder: take it out, and give --steps")
