"""Backend ``sdpa``: torch's own scaled_dot_product_attention, with whichever kernel torch selects.

On a CPU it is deterministic. On CUDA its kernels add to dQ in whatever order blocks finish, unless
torch.use_deterministic_algorithms(True) holds, without warn_only, in forward *and* backward.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from analysis.errors import Refused
from train.attention.backend import Backend, Options, register

# Taken from the extension, so that a replaced attribute of torch.nn.functional cannot stand in for it.
extension: Any = torch._C
torch_sdpa: Callable[..., Tensor] = extension._nn.scaled_dot_product_attention


def attend(query: Tensor, key: Tensor, value: Tensor, options: Options, deterministic: bool) -> Tensor:
    """Calls torch's op; with ``deterministic`` first makes sure that its kernels on this device are."""
    if deterministic:
        require_determinism(query.device.type)
    return torch_sdpa(
        query,
        key,
        value,
        attn_mask=options.mask,
        dropout_p=0.0,
        is_causal=options.is_causal,
        scale=options.scale,
        enable_gqa=options.enable_gqa,
    )


def require_determinism(device_type: str) -> None:
    """Refuses a device or a switch under which torch's attention may race."""
    if device_type in ("cpu", "meta"):
        return
    if device_type != "cuda":
        raise Refused(f"deterministic sdpa on {device_type}: known on cpu and cuda only; use the backend math")
    if not torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled():
        raise Refused(
            "deterministic sdpa on cuda: needs torch.use_deterministic_algorithms(True) without warn_only, "
            "or its kernels race; call train.determinism.strict() first"
        )
    if torch.backends.cuda.cudnn_sdp_enabled():
        raise Refused("deterministic sdpa on cuda: cuDNN attention was enabled again; it races; leave it off")
    if torch.version.hip and torch.backends.cuda.mem_efficient_sdp_enabled():
        raise Refused("deterministic sdpa on ROCm: the efficient kernel was enabled again; it races; leave it off")


@contextmanager
def kernels(deterministic: bool) -> Iterator[None]:
    """With ``deterministic``, takes the kernels that ignore torch's strict mode out of its choice.

    These are cuDNN's, and on ROCm the efficient one. A step must be compiled inside: the choice is compiled in.
    """
    cudnn, efficient = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    if deterministic:
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(efficient and not torch.version.hip)
    with warnings.catch_warnings():
        # Under vmap the CPU kernel runs sample by sample: 7 % slower at 24 samples of 257 tokens, and still
        # 1.6 times as fast as the backend math.
        warnings.filterwarnings(
            "ignore", message="There is a performance drop.*_scaled_dot_product_flash_attention_for_cpu"
        )
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(cudnn)
            torch.backends.cuda.enable_mem_efficient_sdp(efficient)


SDPA = register(Backend("sdpa", attend, can_be_deterministic=True, around=kernels))
