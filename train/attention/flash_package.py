"""The flash-attn package, version 2: found when it is asked for, and its kernels as two ops of torch.

The package's own autograd formulas do not work under torch.func, so only its raw forward and backward are called,
each inside an op that neither vmap nor the compiler looks into. Sizes: B samples, Q queries, K keys, H heads,
G heads of key and value (H a multiple of G), D. With a ``seen`` mask, keys are packed sample after sample, without
the hidden ones, and the package's ``varlen`` kernels run.
"""

import re
import sys
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from analysis.errors import UsageError

INSTALL = "pip install 'sigma-probes[flash]'"
OLDEST = (2, 7)  # whose raw functions have the arguments below
KERNELS = "flash_attn_2_cuda"  # the package's extension
WIDTH = 8  # head dimensions are multiples of this; others are padded with zeros


def kernels() -> Any:
    """The package's module of raw functions. UsageError where it is missing, damaged or of another version."""
    try:
        package, interface = import_module("flash_attn"), import_module("flash_attn.flash_attn_interface")
    except ModuleNotFoundError as error:
        if error.name == "flash_attn":
            raise UsageError(f"attention flash: the flash-attn package is not installed; {INSTALL}") from None
        raise UsageError(f"attention flash: flash-attn does not load ({error}); install it anew: {INSTALL}") from None
    except ImportError as error:
        raise UsageError(f"attention flash: flash-attn does not load ({error}); install it anew: {INSTALL}") from None
    found = version(package)
    if not OLDEST <= found < (3, 0):
        raise UsageError(f"attention flash: takes flash-attn 2.7 to below 3, found {package.__version__}; {INSTALL}")
    return interface


def version(package: ModuleType) -> tuple[int, int]:
    """Major and minor."""
    parts = re.match(r"(\d+)\.(\d+)", getattr(package, "__version__", ""))
    return (int(parts[1]), int(parts[2])) if parts else (0, 0)


def check_device(kind: str) -> None:
    """UsageError where the kernels that are loaded do not run on a device of this kind."""
    if kind != "cuda" and KERNELS in sys.modules:
        raise UsageError(f"attention flash on {kind}: its kernels run on cuda only; take sdpa or math")


class Packing(NamedTuple):
    """Where the visible keys of all samples lie. places: [kept], in a [B * K] list; the rest as the package has it."""

    places: Tensor
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int

    @property
    def lengths(self) -> dict[str, Any]:
        """The package's arguments."""
        return {name: value for name, value in self._asdict().items() if name != "places"}


def packing(seen: Tensor, queries: int) -> Packing:
    """seen: [B, K]. Every sample keeps all of its queries, and those keys that are seen."""
    lengths = seen.sum(1, dtype=torch.int32)
    ends = lengths.cumsum(0, dtype=torch.int32)
    return Packing(
        places=seen.flatten().nonzero().flatten(),
        cu_seqlens_q=torch.arange(len(seen) + 1, dtype=torch.int32, device=seen.device) * queries,
        cu_seqlens_k=pad(ends, (1, 0)),
        max_seqlen_q=queries,
        max_seqlen_k=int(lengths.max()),
    )


def widened(*tensors: Tensor) -> list[Tensor]:
    """The tensors contiguous, with zeros up to a head dimension that the kernels take."""
    return [pad(x, (0, -x.shape[-1] % WIDTH)).contiguous() for x in tensors]


def common(scale: float, causal: bool) -> dict[str, Any]:
    """Arguments of every call of the package."""
    return {
        "dropout_p": 0.0,
        "softmax_scale": scale,
        "causal": causal,
        "window_size_left": -1,
        "window_size_right": -1,
        "softcap": 0.0,
        "alibi_slopes": None,
    }


@torch.library.custom_op("sigma_probes::flash_forward", mutates_args=())
def flash_forward(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output [B, Q, H, D] and the logarithm of each query's sum [B, H, Q] in float32.

    query: [B, Q, H, D]; key, value: [B, K, G, D]; seen: [B, K], True where a key may be seen.
    """
    batch, queries, _, width = query.shape
    q, k, v = widened(query, key, value)
    arguments = common(scale, causal) | {"return_softmax": False}
    if seen is None:
        out, sums, *_ = kernels()._flash_attn_forward(q, k, v, **arguments)
    else:
        packed = packing(seen, queries)
        k, v = (x.flatten(0, 1)[packed.places] for x in (k, v))
        out, sums, *_ = kernels()._flash_attn_varlen_forward(q.flatten(0, 1), k, v, **packed.lengths, **arguments)
        out, sums = out.unflatten(0, (batch, queries)), sums.unflatten(1, (batch, queries)).transpose(0, 1)
    return out[..., :width].clone(memory_format=torch.contiguous_format), sums.contiguous()


@flash_forward.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, scale: float, causal: bool
) -> tuple[Tensor, Tensor]:
    batch, queries, heads, _ = query.shape
    return query.new_empty(query.shape), query.new_empty((batch, heads, queries), dtype=torch.float32)


@torch.library.custom_op("sigma_probes::flash_backward", mutates_args=())
def flash_backward(
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
) -> tuple[Tensor, Tensor, Tensor]:
    """dQ, dK, dV, in the shapes of query, key and value; a hidden key gets zero."""
    batch, keys = key.shape[:2]
    q, k, v, o, d_o = widened(query, key, value, out, d_out)
    arguments = common(scale, causal) | {"deterministic": deterministic}
    if seen is None:
        d_q, d_k, d_v = (torch.zeros_like(x) for x in (q, k, v))
        kernels()._flash_attn_backward(d_o, q, k, v, o, sums.contiguous(), d_q, d_k, d_v, **arguments)
    else:
        packed = packing(seen, query.shape[1])
        q, o, d_o = (x.flatten(0, 1) for x in (q, o, d_o))
        k, v = (x.flatten(0, 1)[packed.places] for x in (k, v))
        d_q, d_k, d_v = (torch.zeros_like(x) for x in (q, k, v))
        sums = sums.transpose(0, 1).flatten(1).contiguous()
        kernels()._flash_attn_varlen_backward(d_o, q, k, v, o, sums, d_q, d_k, d_v, **packed.lengths, **arguments)
        d_q = d_q.unflatten(0, (batch, -1))
        d_k, d_v = (
            x.new_zeros(batch * keys, *x.shape[1:]).index_copy_(0, packed.places, x).unflatten(0, (batch, keys))
            for x in (d_k, d_v)
        )
    width = query.shape[-1]
    return d_q[..., :width].contiguous(), d_k[..., :width].contiguous(), d_v[..., :width].contiguous()


@flash_backward.register_fake
def _(
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
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)
