"""Which attention calls were made: what a certificate of determinism counts."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

#: Backend, deterministic. A call that the backend did not take as it was has the reason after the name of the one
#: that computed it: ``sdpa instead of flash (float64)``.
Kind = tuple[str, bool]

# Executed calls inside compiled graphs, since the process began. A graph may change a tensor for as often as it
# runs; a Python number would be compiled in, and each new value would compile the step anew.
compiled_calls: dict[Kind, Tensor] = {}


def compiled_tally(kind: Kind) -> Tensor:
    """The number of compiled calls of ``kind`` so far: a whole number on the CPU."""
    return compiled_calls.setdefault(kind, torch.zeros((), dtype=torch.int64, device="cpu"))


def computed_by(name: str) -> str:
    """The backend that computed calls counted under ``name``."""
    return name.partition(" ")[0]


class AttentionCalls:
    """Counts by (backend, deterministic, module name), from when it is made until ``close``.

    The name is empty where no model was given, and for calls inside compiled graphs. A call under vmap counts
    once for the whole chunk; a call that activation checkpointing repeats counts again. One thread at a time.
    """

    def __init__(self) -> None:
        self.entered: list[str] = []  # names of the modules whose forward is running, outermost first
        self.closed = False
        self.counted: dict[tuple[str, bool, str], int] = {}
        self.longest_keys = 0  # of the calls outside compiled graphs
        self.compiled_before = {kind: int(tally) for kind, tally in compiled_calls.items()}

    def record(self, kind: Kind, keys: int) -> None:
        """One more call, over a sequence of ``keys``, from the innermost module that is running."""
        self.longest_keys = max(self.longest_keys, keys)
        key = (*kind, self.entered[-1] if self.entered else "")
        self.counted[key] = self.counted.get(key, 0) + 1

    def close(self) -> None:
        """Takes the compiled calls over; later ones are not counted."""
        self.counted, self.closed = self.counts, True

    @property
    def counts(self) -> dict[tuple[str, bool, str], int]:
        """Calls by (backend, deterministic, module name)."""
        counts = dict(self.counted)
        if not self.closed:
            for kind, tally in compiled_calls.items():
                if new := int(tally) - self.compiled_before.get(kind, 0):
                    counts[*kind, ""] = counts.get((*kind, ""), 0) + new
        return counts

    @property
    def total(self) -> int:
        """All calls: 0 means that the model's attention did not come through here."""
        return sum(self.counts.values())

    @property
    def not_deterministic(self) -> int:
        """Calls that were not made with deterministic=True."""
        return sum(n for (_, deterministic, _), n in self.counts.items() if not deterministic)

    def by_backend(self) -> dict[Kind, int]:
        """Calls by (backend, deterministic)."""
        sums = Counter[Kind]()
        for (backend, deterministic, _), n in self.counts.items():
            sums[backend, deterministic] += n
        return dict(sums)

    def summary(self) -> dict[str, int]:
        """``by_backend`` in words: ``sdpa, deterministic``."""
        return {f"{name}, {'' if kept else 'not '}deterministic": n for (name, kept), n in self.by_backend().items()}

    def by_module(self) -> dict[str, int]:
        """Calls by the name of the module that made them."""
        sums = Counter[str]()
        for (_, _, module), n in self.counts.items():
            sums[module] += n
        return dict(sums)

    @contextmanager
    def names_of(self, model: nn.Module) -> Iterator[None]:
        """Inside, the modules of ``model`` say when they run, so that calls carry their names."""

        def enter(name: str) -> Callable[[nn.Module, object], None]:
            return lambda module, args: self.entered.append(name)

        def leave(module: nn.Module, args: object, output: object) -> None:
            self.entered.pop()

        hooks = [
            hook
            for name, module in model.named_modules()
            for hook in (
                module.register_forward_pre_hook(enter(name)),
                module.register_forward_hook(leave, always_call=True),
            )
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
