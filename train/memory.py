"""What a step takes of memory, counted without taking it: the step runs on tensors that have shapes and no numbers.

    peak(model, lambda skeleton: loss(skeleton, inputs).backward())  # bytes beside model and inputs

The model may hold its weights or be on torch's meta device. Counted is what torch's operations allocate: not the
workspace of a kernel, nor what an allocator keeps in reserve.
"""

import copy
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from train.attention.flash import Flash, in_kernel_layout

MIB, GIB = 2**20, 2**30


class Allocations(TorchDispatchMode):
    """Follows the storages that operations inside it make. now, most: bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.most = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {key for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and (key := storage_key(x))}
        answer = func(*args, **(kwargs or {}))
        for x in tree_leaves(answer):
            if isinstance(x, Tensor) and (key := storage_key(x)) not in given | self.known:
                self.add(key, x.untyped_storage())
        return answer

    def add(self, key: int, storage: torch.UntypedStorage) -> None:
        """A storage that is new here; it is taken off when it dies."""
        size = storage.nbytes()
        self.known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.freed, key, size)

    def freed(self, key: int, size: int) -> None:
        """A storage has died."""
        self.known.discard(key)
        self.now -= size


def storage_key(x: Tensor) -> int:
    """Names the storage of ``x`` as long as it lives."""
    return x.untyped_storage()._cdata


def peak(model: nn.Module, step: Callable[[nn.Module], object], *, tiled: bool = False) -> int | None:
    """Most bytes at one time that ``step(skeleton)`` allocates, skeleton being ``model`` without numbers.

    tiled: attention never holds all scores, as torch's own does not on cuda. Open a route of attention outside, not
    in ``step``. None where it cannot be told, because the step looks at numbers.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        skeleton = without_numbers(model)
        with Allocations() as allocated, tiled_attention() if tiled else nullcontext():
            try:
                kept = step(skeleton)
            except (DataDependentOutputException, DynamicOutputShapeException):
                return None
            del kept
    return allocated.most


def without_numbers(model: nn.Module) -> nn.Module:
    """In a FakeTensorMode: a copy of ``model`` without numbers, on the CPU whatever device it is on."""
    memo: dict[int, Any] = {}
    for tensor in tensors_of(model):
        fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        if isinstance(tensor, nn.Parameter):
            fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
        memo[id(tensor)] = fake
    return copy.deepcopy(model, memo)


def tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and tensors that modules hold as plain attributes."""
    yield from model.parameters()
    yield from model.buffers()
    for module in model.modules():
        yield from (x for x in tree_leaves(dict(vars(module))) if isinstance(x, Tensor))


@contextmanager
def tiled_attention() -> Iterator[None]:
    """Inside, and in a FakeTensorMode, attention takes what flash attention takes, in the type it is given."""

    def attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        q, k, v = (in_kernel_layout(x) for x in (query, key, value))
        out, _ = Flash.apply(q, k, v, None, 1.0, False, True)
        return out.transpose(1, 2).reshape(*query.shape[:-1], value.shape[-1])

    before = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = attention
    try:
        yield
    finally:
        F.scaled_dot_product_attention = before


@dataclass(frozen=True)
class Memory:
    """Of one process, in bytes. activations: most that forward and backward hold beside the rest; None: not known.

    weights: of the base model; gradients: of the adapter, as they are kept; samples: latents and texts.
    """

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int | None
    gram: int
    samples: int

    @property
    def total(self) -> int | None:
        """Of all of them."""
        return None if self.activations is None else sum(asdict(self).values())

    def __str__(self) -> str:
        parts = {**asdict(self), "total": self.total}
        return "memory     " + ", ".join(f"{name} {in_words(n)}" for name, n in parts.items() if n != 0)


def in_words(size: int | None) -> str:
    """A size in bytes, to be read."""
    if size is None:
        return "not known, since the model looks at numbers"
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


def size_of(tensors: Iterable[Tensor]) -> int:
    """Bytes."""
    return sum(x.numel() * x.element_size() for x in tensors)


def weights_of(model: nn.Module, adapter: Mapping[str, Tensor]) -> int:
    """Bytes of the parameters and buffers of ``model`` that are not in ``adapter``."""
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return size_of(x for name, x in named.items() if name not in adapter)
