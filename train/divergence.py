"""Which module does not repeat: the innermost one that was given the same and answered otherwise.

A step that differs between two repeats differs almost everywhere upstream of the cause. So every module's inputs,
outputs and their gradients are hashed, byte for byte, in several repeats of the step:

- forward: a module whose inputs are equal and whose outputs are not;
- backward: a module whose output gradients are equal, while a gradient at its inputs or inside it is not.

Of causes one behind the other only the one nearest to the loss shows.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map

from train.job import Job
from train.training_step import gradients

Key = tuple[str, int, str, int]  # module, number of its call, place, tensor there
Trace = dict[Key, str]  # SHA-256 of each tensor's bytes

INPUT, OUTPUT, D_INPUT, D_OUTPUT = "input", "output", "input gradient", "output gradient"


def diverging(job: Job, step: int, repeats: int = 4) -> list[str]:
    """Names of the modules that did not repeat in ``repeats`` eager runs of ``step``, in the model's order."""
    traces = [trace(job, step) for _ in range(repeats)]
    found = {name for other in traces[1:] for name in suspects(traces[0], other)}
    return [name for name, _ in job.transformer.named_modules() if name in found]


def trace(job: Job, step: int) -> Trace:
    """Every module's tensors in one repeat of ``step``."""
    seen: Trace = {}
    with watched(job.transformer, seen):
        gradients(job, step, eager=True)
    return seen


def suspects(one: Trace, other: Trace) -> set[str]:
    """Innermost modules where a difference between two traces begins."""
    differ: dict[str, set[str]] = {}
    for key in one.keys() | other.keys():
        if one.get(key) != other.get(key):
            differ.setdefault(key[0], set()).add(key[2])
    modules = {key[0] for key in one}
    begins = {name for name in modules if begins_in(name, differ)}
    return {name for name in begins if not any(inside(deeper, name) for deeper in begins)}


def begins_in(name: str, differ: dict[str, set[str]]) -> bool:
    """Whether ``name`` was given the same and gave, or holds, something else."""
    own = differ.get(name, set())
    if OUTPUT in own:
        return INPUT not in own
    forward_equal = not ({INPUT, OUTPUT} & own)
    within = D_INPUT in own or any(D_OUTPUT in places for deeper, places in differ.items() if inside(deeper, name))
    return forward_equal and D_OUTPUT not in own and within


def inside(deeper: str, name: str) -> bool:
    """Whether module ``deeper`` is part of module ``name``, and not itself."""
    return deeper != name and (not name or deeper.startswith(f"{name}."))


@contextmanager
def watched(model: nn.Module, seen: Trace) -> Iterator[None]:
    """Within it, every tensor that goes into or comes out of a module of ``model`` is hashed into ``seen``."""
    calls: Counter[str] = Counter()
    hooks = []
    for name, module in model.named_modules():
        before, after = watchers(name, calls, seen)
        hooks += [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after),
        ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def watchers(name: str, calls: Counter[str], seen: Trace) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two hooks of one module."""

    def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
        calls[name] += 1
        # An alias of its own, so that the gradient at it comes from this module alone.
        args, kwargs = tree_map(lambda x: x.view_as(x) if isinstance(x, Tensor) else x, (args, kwargs))
        note((args, kwargs), INPUT, D_INPUT)
        return args, kwargs

    def after(module: nn.Module, args: Any, output: Any) -> None:
        note(output, OUTPUT, D_OUTPUT)

    def note(tensors: Any, place: str, gradient_place: str) -> None:
        number = calls[name]
        for k, tensor in enumerate(x for x in tree_flatten(tensors)[0] if isinstance(x, Tensor)):
            seen[name, number, place, k] = digest(tensor)
            if tensor.requires_grad:
                key = (name, number, gradient_place, k)
                tensor.register_hook(lambda gradient, key=key: seen.__setitem__(key, digest(gradient)))

    return before, after


def digest(tensor: Tensor) -> str:
    """SHA-256 of a tensor's bytes."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.data).hexdigest()
