"""In which block numbers stop being finite: half precision overflows in one, and everything after it is NaN."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from train.families import Family, block_of, blocks


def in_forward(family: Family, transformer: nn.Module, forward: Callable[[], object]) -> str:
    """Where ``forward``, repeated without gradients, first leaves the finite numbers, as the end of a sentence."""
    seen: list[tuple[str, bool, bool]] = []  # block, whether what it was given and what it gave are finite

    def noting(name: str) -> Callable[..., None]:
        return lambda module, args, kwargs, output: seen.append((name, finite((args, kwargs)), finite(output)))

    with torch.no_grad(), ExitStack() as hooks:
        for name in blocks(family, transformer):
            hook = transformer.get_submodule(name).register_forward_hook(noting(name), with_kwargs=True)
            hooks.callback(hook.remove)
        forward()
    for name, given, gave in seen:
        if not gave:
            return f"first in block {name}" if given else f"before block {name}"
    return "after the last block" if seen else "before the first block"


def in_backward(family: Family, gradients: Mapping[str, Tensor]) -> str:
    """The same for gradients by name, in the model's order: of the blocks not finite the one nearest to the loss."""
    bad = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    return f"first in block {block_of(family, bad[-1])}" if bad else "in their sum"


def finite(values: Any) -> bool:
    """Whether every floating-point tensor among ``values`` is."""
    tensors: Iterable[Any] = tree_flatten(values)[0]
    return all(bool(x.isfinite().all()) for x in tensors if isinstance(x, Tensor) and x.is_floating_point())
