"""How a step is executed: its precision, attention kernel and device."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from analysis.errors import UsageError
from train.attention import AttentionCalls, routed
from train.plan import Plan

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
RACING = "racing"


def device_named(name: str) -> str:
    """``cpu`` or ``cuda``; auto: cuda where there is one. UsageError where there is none."""
    if name not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device {name}: takes auto, cpu or cuda")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("--device cuda: torch finds none on this machine; take cpu")
    return name


@dataclass(frozen=True)
class Execution:
    """What a run does where an arm says nothing. deterministic: asked of every attention call."""

    attention: str = "sdpa"
    deterministic: bool = True
    dtype: str | None = None  # autocast
    device: str = "cpu"

    def tiled(self, plan: Plan) -> bool:
        """Whether a step of ``plan`` takes torch's attention of cuda, which never holds all scores."""
        return self.device == "cuda" and (plan.attention or self.attention) == "sdpa"


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
