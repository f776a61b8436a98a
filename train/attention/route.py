"""The one interception: inside ``routed`` every scaled_dot_product_attention of torch is this project's op.

It replaces the attribute ``torch.nn.functional.scaled_dot_product_attention``, which diffusers' dispatcher
and models look up at each call. That holds in eager mode, under torch.func's vmap(grad(...)) and under
torch.compile. A module that imported the function by name before, or another attention package, does not come
through here: its calls are missing from the count.

    with routed("sdpa", deterministic=True) as calls:
        loss.backward()  # the backward belongs inside: kernels read the switches there
    calls.by_backend()  # {("sdpa", True): 6}

The attribute belongs to the whole process: do not route from two threads at once.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from analysis.errors import Refused, UsageError
from train.attention.backend import Backend, Options, backend_named
from train.attention.calls import AttentionCalls, Kind, compiled_tally, computed_by
from train.attention.sdpa import SDPA, torch_sdpa


@dataclass(frozen=True)
class Route:
    """A route in force: its promise, its count, and what it put in the place of torch's op."""

    deterministic: bool
    calls: AttentionCalls
    op: Callable[..., Tensor]


in_force: list[Route] = []  # outermost first


@contextmanager
def routed(backend: str, *, deterministic: bool, model: nn.Module | None = None) -> Iterator[AttentionCalls]:
    """Sends every attention call to ``backend`` with ``deterministic`` and counts it.

    model: its modules' names go with the counts (a compiled step is then compiled anew). Routes nest: the
    inner one computes, each enclosing one counts what the inner one did. Inside a deterministic route only a
    deterministic one can be opened. torch's op is put back at the end, also after an exception.
    """
    chosen = backend_named(backend)
    if deterministic and not chosen.can_be_deterministic:
        raise Refused(
            f"attention backend {backend!r} cannot be deterministic; use sdpa or math, or deterministic=False"
        )
    if not deterministic and any(outer.deterministic for outer in in_force):
        running = next((outer.calls.entered[-1] for outer in in_force if outer.calls.entered), "")
        raise Refused(
            f"attention {backend!r} with deterministic=False inside a deterministic route"
            f"{running and f' ({running})'}; route it separately"
        )
    before = F.scaled_dot_product_attention
    if before is not (in_force[-1].op if in_force else torch_sdpa):
        raise Refused(f"scaled_dot_product_attention was replaced by {before!r}; undo that before attention is routed")
    calls = AttentionCalls()
    op = attention_op(chosen, deterministic)
    with ExitStack() as stack:
        if model is not None:
            stack.enter_context(calls.names_of(model))
        stack.enter_context(chosen.around(deterministic))
        in_force.append(Route(deterministic, calls, op))
        F.scaled_dot_product_attention = op
        try:
            yield calls
            if F.scaled_dot_product_attention is not op:
                raise Refused("scaled_dot_product_attention was replaced inside a route: later calls were not counted")
        finally:
            F.scaled_dot_product_attention = before
            in_force.pop()
            calls.close()
            tell(calls)


@cache
def attention_op(backend: Backend, deterministic: bool) -> Callable[..., Tensor]:
    """A stand-in for torch's op, with its signature, that counts and computes by ``backend``.

    Made once, so that a compiled step stays compiled from one route to the next.
    """
    served = servings(backend, deterministic)

    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p != 0:
            raise UsageError(
                f"attention dropout {dropout_p}: only 0, since a step has no hidden randomness; call model.eval()"
            )
        options = Options(attn_mask, is_causal, scale, enable_gqa)
        limits = [i for i, limit in enumerate(backend.limits) if limit.holds(query, key, value, options)]
        serving = served[limits[0] if limits else -1]
        if torch.compiler.is_compiling():
            serving.tally.add_(1)
        else:
            for route in in_force:
                route.calls.record(serving.kind, key.shape[-2])
        return serving.backend.attend(query, key, value, options, deterministic)

    return scaled_dot_product_attention


@dataclass(frozen=True)
class Serving:
    """Who computes a call, and how it is counted."""

    backend: Backend
    kind: Kind
    tally: Tensor  # of compiled calls


def servings(backend: Backend, deterministic: bool) -> list[Serving]:
    """For each limit of ``backend``, and last for a call to which none applies."""
    served = []
    for limit in backend.limits:
        name = f"{SDPA.name} instead of {backend.name}" if limit.falls else backend.name
        kind = (f"{name} ({limit.reason})", deterministic)
        served.append(Serving(SDPA if limit.falls else backend, kind, compiled_tally(kind)))
    kind = (backend.name, deterministic)
    return [*served, Serving(backend, kind, compiled_tally(kind))]


told: set[str] = set()  # the calls that were warned of in this process


def tell(calls: AttentionCalls) -> None:
    """One line on standard error for each kind of call that a backend did not take as it was, once a process."""
    for (name, _), count in calls.by_backend().items():
        if name != computed_by(name) and name not in told:
            told.add(name)
            print(f"warning: attention by {name}: {count} calls so far", file=sys.stderr, flush=True)
