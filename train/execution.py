"""How a step is executed: its precision, attention kernel and device."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from train.attention import AttentionCalls, routed
from train.plan import Plan

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
RACING = "racing"


@dataclass(frozen=True)
class Execution:
    """What a run does where an arm says nothing. deterministic: asked of every attention call."""

    attention: str = "sdpa"
    deterministic: bool = True
    dtype: str | None = None  # autocast
    device: str = "cpu"


@contextmanager
def executed_as(plan: Plan, run: Execution, model: nn.Module | None = None) -> Iterator[AttentionCalls]:
    """Within it a step, its backward too, runs as ``plan`` says, and as ``run`` where the plan says nothing.

    Yields the count of attention calls, with the names of ``model``'s modules if it is given.
    """
    with ExitStack() as stack:
        calls = stack.enter_context(
            routed(plan.attention or run.attention, deterministic=run.deterministic, model=model)
        )
        dtype = plan.dtype or run.dtype
        if dtype is not None:
            stack.enter_context(torch.autocast(run.device, DTYPES[dtype], enabled=dtype != "fp32"))
            stack.enter_context(warnings.catch_warnings())
            # Norms keep float32 weights under autocast, which costs torch a fused kernel and changes no number.
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        yield calls
