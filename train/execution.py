"""How a step is executed: the precision and the attention kernel of its plan, else those of the run."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from train.attention import AttentionCalls, routed
from train.plan import Plan

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@contextmanager
def executed_as(plan: Plan, attention: str, *, device: str = "cpu") -> Iterator[AttentionCalls]:
    """Within it a step runs as ``plan`` says, with the backend ``attention`` where the plan names none.

    Every backend but ``racing`` is asked to be deterministic. Yields the count of attention calls.
    """
    backend = plan.attention or attention
    with ExitStack() as stack:
        calls = stack.enter_context(routed(backend, deterministic=backend != "racing"))
        if plan.dtype is not None:
            stack.enter_context(torch.autocast(device, DTYPES[plan.dtype], enabled=plan.dtype != "fp32"))
            stack.enter_context(warnings.catch_warnings())
            # Norms keep float32 weights under autocast, which costs torch a fused kernel and changes no number.
            warnings.filterwarnings("ignore", message="Mismatch dtype between input and weight")
        yield calls
