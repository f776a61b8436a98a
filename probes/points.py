"""Where a sweep takes its gradients: at one adapter, or at several checkpoints of one run in turn.

With metric ``adam`` a point has the training state that it divides by. The model is loaded once; going to another
checkpoint puts its adapter into the same parameters.
"""

import sys
from collections.abc import Mapping, Sequence
from multiprocessing import parent_process
from pathlib import Path

import numpy as np
from torch import nn

from analysis.errors import UsageError
from probes import training_state
from probes.checkpoints import Checkpoint, check_pair
from probes.metrics import Point
from probes.training_state import TrainingState
from train import adapter, adapter_file, model

FRESH = "fresh"


class Points:
    """The adapters of ``checkpoints`` (none: the model's own, else a fresh one), the first attached to the transformer.

    parameters: of the transformer; steps: of the checkpoints, where there are several; hashes and settings: for the
    provenance. Raises UsageError for what does not fit, of every checkpoint.
    """

    def __init__(
        self, loaded: model.Model, checkpoints: Sequence[Checkpoint], *, rank: int, seed: int, adam: bool = False
    ) -> None:
        given = checkpoints[0].adapter if checkpoints else None
        self.parameters, self.lora, digest = model.adapter_of(loaded, given, rank=rank, seed=seed)
        if digest == FRESH:
            say("warning: a fresh adapter has up = 0, so the gradient of down is zero; probe a warmed one (--adapter)")
            if adam:
                raise UsageError(f"metric adam: a fresh adapter has no optimiser state; {training_state.NEEDS}")
        own = loaded.folder / "adapter" / "adapter.safetensors"
        self.files = [one.adapter for one in checkpoints] or [own]
        self.steps = tuple(one.step or 0 for one in checkpoints) if len(checkpoints) > 1 else ()
        self.hashes: dict[str, str] = {}
        self.settings: dict[str, object] = {"steps": list(self.steps)} if self.steps else {}
        self._adam = adam
        self._state: TrainingState | None = None
        self._here = 0
        self._point = self._at_once()
        self._describe(digest)
        for position in range(1, len(self.files)):
            self.at(position)
            self._describe(model.hash_of(adapter_file.files_of(self.files[position])))

    def at(self, position: int) -> Point:
        """Go to the checkpoint at ``position`` in the order of ``steps``: its adapter is then in the parameters."""
        if position != self._here:
            check_alike(self.files[0], self.files[position])
            put(self.parameters, self.files[position])
            self._here = position
            self._point = self._at_once()
        return self._point

    def _at_once(self) -> Point:
        """The point that the parameters are at."""
        values = {name: p.detach().cpu().double().numpy() for name, p in self.parameters.items()}
        if not self._adam:
            return Point(values, self.lora.scale)
        self._state = training_state.read(training_state.beside(self.files[self._here]))
        return Point(values, self.lora.scale, self._state.denominators(values))

    def _describe(self, digest: str) -> None:
        """Add the checkpoint that the parameters are at to hashes and settings, under its step if there are several."""
        suffix = f"@{self.steps[self._here]}" if self.steps else ""
        self.hashes[f"adapter{suffix}"] = digest
        if (state := self._state) is None:
            return
        check_pair(self.files[self._here])
        self.hashes[f"optimizer{suffix}"] = model.hash_of([state.file])
        self.settings[f"adam{suffix}"] = {"step": state.step, "beta2": state.beta2, "epsilon": state.epsilon}
        say(
            f"adam: second moments after step {state.step}, beta2 {state.beta2:g}, eps {state.epsilon:g} ({state.file})"
        )
        if state.share_of_zeros:
            say(
                f"warning: no gradient has reached {state.share_of_zeros:.1%} of the adapter's elements yet; adam "
                "divides theirs by eps alone, so they outweigh all others; take a later step"
            )


def check_alike(first: Path, other: Path) -> None:
    """UsageError where two adapters have another rank or alpha. Their modules are compared as they are put."""
    one, two = adapter.read(first)[1], adapter.read(other)[1]
    if (one.rank, one.alpha) != (two.rank, two.alpha):
        raise UsageError(
            f"{other}: rank {two.rank} and alpha {two.alpha:g}, {first} has {one.rank} and {one.alpha:g}; give "
            "checkpoints of one run"
        )


def put(parameters: dict[str, nn.Parameter], file: Path) -> None:
    """The adapter of ``file`` into ``parameters``, in the memory that they have and that others look at."""
    held = {name: p.data for name, p in parameters.items()}
    adapter.fill(parameters, file)
    for name, p in parameters.items():
        held[name].copy_(p.data)
        p.data = held[name]


def sizes(parameters: Mapping[str, np.ndarray]) -> int:
    """How many numbers there are."""
    return sum(values.size for values in parameters.values())


def say(text: str) -> None:
    """A line for the person, on standard error, from the one process that was started by hand."""
    if parent_process() is None:
        print(text, file=sys.stderr, flush=True)
