"""Backend ``flash``: the kernels of the flash-attn package, with ``deterministic`` passed in every backward.

They take bfloat16 and float16, and of masks those that hide keys from all queries and heads of a sample alike, as
padded text does. What they cannot take (``LIMITS``) goes to ``sdpa``, which the count of calls says by name. Layout
and type are changed here, once a call: torch's [B, H, S, D] is the kernels' [B, S, H, D].
"""

from typing import Any

import torch
from torch import Tensor

from train.attention.backend import Backend, Limit, Options, register
from train.attention.flash_package import check_device, flash_backward, flash_forward, kernels
from train.attention.racing import leading
from train.attention.sdpa import kernels as without_racing_kernels

HALF = (torch.bfloat16, torch.float16)
WIDEST = 256  # head dimension

Mapped = tuple[int | None, ...]  # for each argument the axis that vmap maps over, if it does


class FlashBackward(torch.autograd.Function):
    """The kernel's backward, also mapped by vmap. It has no derivative of its own."""

    @staticmethod
    def forward(  # every argument by name: the compiler takes the first of *arguments for a context
        d_out: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
        sums: Tensor,
        seen: Tensor | None,
        scale: float,
        causal: bool,
        deterministic: bool,
    ) -> Any:
        """As ``flash_backward``."""
        return flash_backward(d_out, query, key, value, out, sums, seen, scale, causal, deterministic)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps nothing."""

    @staticmethod
    def backward(ctx: Any, *d_outputs: Any) -> Any:
        """Refuses."""
        raise NotImplementedError("flash attention has no second derivative; use the backend math")

    @staticmethod
    def vmap(info: Any, in_dims: Mapped, *arguments: Any) -> tuple[tuple[Tensor, ...], Mapped]:
        """The mapped axis goes into the batch."""
        found = FlashBackward.apply(*into_batch(info.batch_size, in_dims, arguments))
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in found), (0, 0, 0)


class Flash(torch.autograd.Function):
    """(query, key, value, seen, scale, causal, deterministic) -> output, sums; as ``flash_forward``."""

    @staticmethod
    def forward(
        query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scale: float, causal: bool, deterministic: bool
    ) -> Any:
        """The kernel's forward, which does not race."""
        return flash_forward(query, key, value, seen, scale, causal)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps what the backward kernel asks for."""
        query, key, value, seen, *ctx.how = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(query, key, value, *output, *([] if seen is None else [seen]))

    @staticmethod
    def backward(ctx: Any, *d_outputs: Any) -> Any:
        """dQ, dK, dV."""
        query, key, value, out, sums, *seen = ctx.saved_tensors
        found = FlashBackward.apply(d_outputs[0], query, key, value, out, sums, seen[0] if seen else None, *ctx.how)
        return *found, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Mapped, *arguments: Any) -> tuple[tuple[Tensor, ...], Mapped]:
        """The mapped axis goes into the batch."""
        found = Flash.apply(*into_batch(info.batch_size, in_dims, arguments))
        return tuple(x.unflatten(0, (info.batch_size, -1)) for x in found), (0, 0)


def into_batch(size: int, in_dims: Mapped, arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments with the mapped axis folded into the first one of every tensor."""
    return [
        leading(size, (dim,), (x,))[0].flatten(0, 1) if isinstance(x, Tensor) else x
        for x, dim in zip(arguments, in_dims, strict=True)
    ]


def attend(query: Tensor, key: Tensor, value: Tensor, options: Options, deterministic: bool) -> Tensor:
    """[..., H, Q, D] in the type of ``query``, or in autocast's."""
    check_device(query.device.type)
    scale = query.shape[-1] ** -0.5 if options.scale is None else options.scale
    kind = half_type(query)
    q, k, v = (in_kernel_layout(x).to(kind) for x in (query, key, value))
    seen = None if options.mask is None else seen_keys(options.mask, len(q), k.shape[1])
    out, _ = Flash.apply(q, k, v, seen, scale, options.is_causal, deterministic)
    autocast = torch.is_autocast_enabled(query.device.type)
    return out.transpose(1, 2).reshape(*query.shape[:-1], value.shape[-1]).to(kind if autocast else query.dtype)


def half_type(query: Tensor) -> torch.dtype:
    """What the kernels compute in: autocast's type, or that of ``query``, or bfloat16 where it is float32."""
    kind = query.dtype
    if torch.is_autocast_enabled(query.device.type):
        kind = torch.get_autocast_dtype(query.device.type)
    return kind if kind in HALF else torch.bfloat16


def in_kernel_layout(x: Tensor) -> Tensor:
    """[..., H, S, D] -> [B, S, H, D]; leading axes that are missing have length one."""
    while x.ndim < 4:
        x = x[None]
    return x.flatten(0, -4).transpose(1, 2)


def seen_keys(mask: Tensor, batch: int, keys: int) -> Tensor:
    """A mask that hides keys alike from all queries and heads, as [B, K]."""
    while mask.ndim < 4:
        mask = mask[None]
    rows = mask[..., 0, 0, :].flatten(0, -2)
    return rows.expand(batch, keys)


def hides_unevenly(query: Tensor, key: Tensor, value: Tensor, options: Options) -> bool:
    """Whether a mask may differ between queries or heads; one that was expanded along them does not."""
    mask = options.mask
    if mask is None:
        return False
    uneven = any(mask.ndim >= -axis and mask.shape[axis] > 1 and mask.stride(axis) != 0 for axis in (-2, -3))
    return uneven or (mask.ndim > 4 and mask.shape[:-3] != query.shape[:-3])


LIMITS = (
    Limit("a mask that is added to the scores", lambda q, k, v, o: o.mask is not None and o.mask.dtype != torch.bool),
    Limit("a mask that differs between queries or heads", hides_unevenly),
    Limit("causal and masked", lambda q, k, v, o: o.is_causal and o.mask is not None),
    Limit("causal over unequal lengths", lambda q, k, v, o: o.is_causal and q.shape[-2] != k.shape[-2]),
    Limit("float64", lambda q, k, v, o: q.dtype == torch.float64),
    Limit("head dimension", lambda q, k, v, o: q.shape[-1] > WIDEST or q.shape[-1] != v.shape[-1]),
    Limit("leading axes that are broadcast", lambda q, k, v, o: not q.shape[:-3] == k.shape[:-3] == v.shape[:-3]),
    Limit("heads that are broadcast", lambda q, k, v, o: not o.enable_gqa and q.shape[:-2] != k.shape[:-2]),
    Limit("float32 rounded to bfloat16", lambda q, k, v, o: half_type(q) not in (q.dtype, autocast_type(q)), False),
)


def autocast_type(query: Tensor) -> torch.dtype | None:
    """That of autocast where it is on."""
    kind = query.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def ready() -> None:
    """UsageError unless the package is there."""
    kernels()


FLASH = register(
    Backend(
        "flash",
        attend,
        can_be_deterministic=True,
        around=without_racing_kernels,  # for the calls that go to sdpa
        ready=ready,
        limits=LIMITS,
    )
)
