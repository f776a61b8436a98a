"""What a backend of the attention op is, and the table of them: one file a backend, open to more."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor

from analysis.errors import UsageError


@dataclass(frozen=True)
class Options:
    """How a call of attention is meant, besides its tensors; meanings as in torch's scaled_dot_product_attention.

    mask: True where a key may be seen, or added to the scores; [..., Q, K], broadcast.
    scale: factor of the scores, 1 / sqrt(head dimension) if None.
    enable_gqa: key and value may have fewer heads than query, each serving a run of them.
    """

    mask: Tensor | None = None
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def nothing_around(deterministic: bool) -> AbstractContextManager[None]:
    """The context of a backend that needs none."""
    return nullcontext()


def always_ready() -> None:
    """For a backend that torch brings."""


@dataclass(frozen=True)
class Limit:
    """Something about a call that a backend has to say. reason: names it in counts and warnings.

    holds: (query, key, value, options) -> whether this call is such a one, from shapes, strides and types alone,
    since values are not to be seen under vmap and in a compiled graph.
    falls: the call goes to ``sdpa``; otherwise the backend computes it all the same.
    """

    reason: str
    holds: Callable[[Tensor, Tensor, Tensor, Options], bool]
    falls: bool = True


@dataclass(frozen=True)
class Backend:
    """One way to compute attention.

    attend: (query [..., Q, D], key [..., K, D], value [..., K, E], options, deterministic) -> [..., Q, E].
    can_be_deterministic: whether it takes deterministic=True at all; a backend that takes it keeps the
    promise or raises Refused.
    around: deterministic -> context in force as long as calls are routed to it.
    ready: raises UsageError where something that it needs is not installed.
    limits: what it does not take as it is; the first that holds for a call counts.
    """

    name: str
    attend: Callable[[Tensor, Tensor, Tensor, Options, bool], Tensor]
    can_be_deterministic: bool
    around: Callable[[bool], AbstractContextManager[None]] = nothing_around
    ready: Callable[[], None] = always_ready
    limits: tuple[Limit, ...] = ()


BACKENDS: dict[str, Backend] = {}


def register(backend: Backend) -> Backend:
    """Adds ``backend`` to the table; its name must be free."""
    if backend.name in BACKENDS:
        raise ValueError(f"attention backend {backend.name!r} exists already; give the new one another name")
    BACKENDS[backend.name] = backend
    return backend


def backend_named(name: str) -> Backend:
    """The backend called ``name``. UsageError where there is none, or where what it needs is not installed."""
    if name not in BACKENDS:
        raise UsageError(f"attention backend {name!r}: takes {', '.join(sorted(BACKENDS))}")
    BACKENDS[name].ready()
    return BACKENDS[name]
