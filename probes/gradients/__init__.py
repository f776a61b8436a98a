"""Per-sample gradients of the trainer's own step, by name: two engines, one answer.

``func`` runs chunks through ``torch.func``; ``loop`` is a plain backward pass a sample, which also
works with activation checkpointing. They agree to about 5e-7, not to the bit, so one store uses one.
"""

from analysis.errors import UsageError
from probes.gradients.engine import Engine, Gradients, Problem
from probes.gradients.func import func
from probes.gradients.loop import loop

__all__ = ["ENGINES", "Engine", "Gradients", "Problem", "engine"]

ENGINES: dict[str, Engine] = {"func": func, "loop": loop}


def engine(name: str) -> Engine:
    """The engine called ``name``."""
    if name not in ENGINES:
        raise UsageError(f"engine {name}: unknown; take {' or '.join(ENGINES)}")
    return ENGINES[name]
