"""A certificate of determinism: evidence that was taken on this machine, for this run, not a flag.

It is granted when nothing was found against it, and says what was looked at either way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Certificate:
    """What was done and found.

    against: findings, one line each; none and it is granted. attention: calls of one step by ``backend, promise``.
    steps: the steps, from 1, that were repeated; repeats: how often each; tensors: compared each time, byte for byte.
    longest_keys: the longest sequence of keys in a step. kernels: repeats of each backend alone, on long sequences.
    fresh: what two new processes had in common, where they were asked for.
    """

    against: tuple[str, ...] = ()
    attention: Mapping[str, int] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    repeats: int = 0
    tensors: int = 0
    longest_keys: int = 0
    kernels: Mapping[str, int] = field(default_factory=dict)
    fresh: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def granted(self) -> bool:
        return not self.against

    def as_json(self) -> dict[str, Any]:
        """For ``certificate.json``."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {"granted": self.granted, **fields}

    def __str__(self) -> str:
        if not self.granted:
            return "no certificate:\n" + "\n".join(f"  {line}" for line in self.against)
        calls = ", ".join(f"{n} {kind}" for kind, n in self.attention.items())
        fresh = "" if self.fresh is None else f"; two new processes agreed in {self.fresh['tensors']} tensors"
        return (
            f"certificate granted: step {', '.join(map(str, self.steps))} repeated {self.repeats} times, "
            f"{self.tensors} tensors equal to the byte each time; attention calls of a step: {calls}{fresh}"
        )


NOT_ASKED = Certificate(against=("--deterministic was not given",))
