"""Backend ``racing``: an emulator of a GPU's racing attention backward, for any device.

Flash attention's backward gives each block of keys to one worker; all workers add to the same dQ,
in the order in which they finish. Here that order comes from the operating system's entropy, anew
for every head of every call, so no seed repeats it. As on a GPU:

- the forward, dK and dV are those of ``math`` to the bit; only dQ races, in its last bits;
- one or two key blocks never differ (adding two numbers commutes): racing needs more than 128 keys.
"""

import os
from typing import Any

import torch
from torch import Tensor

from train.attention import explicit
from train.attention.backend import Backend, Options, register

KEY_BLOCK = 64  # keys


@torch.library.custom_op("sigma_probes::racing_query_gradient", mutates_args=())
def racing_query_gradient(d_scores: Tensor, key: Tensor) -> Tensor:
    """dQ = dS K [N, Q, D], summed over key blocks in a random order. d_scores: [N, Q, K]; key: [N, K, D]."""
    heads, queries, keys = d_scores.shape
    blocks = -(-keys // KEY_BLOCK)
    padding = blocks * KEY_BLOCK - keys
    d_scores = torch.nn.functional.pad(d_scores, (0, padding)).reshape(heads, queries, blocks, KEY_BLOCK)
    key = torch.nn.functional.pad(key, (0, 0, 0, padding)).reshape(heads, blocks, KEY_BLOCK, -1)
    entropy = torch.Generator().manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    order = torch.rand(heads, blocks, generator=entropy).argsort(1).to(key.device)
    head = torch.arange(heads, device=key.device)
    d_query = key.new_zeros(heads, queries, key.shape[-1])
    for block in order.T:
        d_query += d_scores[head, :, block] @ key[head, block]
    return d_query


@racing_query_gradient.register_fake
def _(d_scores: Tensor, key: Tensor) -> Tensor:
    return key.new_empty(d_scores.shape[0], d_scores.shape[1], key.shape[2])


class RacingQueryGradient(torch.autograd.Function):
    """The op above for any leading axes, also mapped by vmap. It has no derivative of its own."""

    @staticmethod
    def forward(d_scores: Tensor, key: Tensor) -> Tensor:
        """[..., Q, K], [..., K, D] with equal leading axes -> [..., Q, D]."""
        d_query = racing_query_gradient(d_scores.flatten(0, -3).contiguous(), key.flatten(0, -3).contiguous())
        return d_query.reshape(*d_scores.shape[:-1], key.shape[-1])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps nothing."""

    @staticmethod
    def backward(ctx: Any, *d_outputs: Any) -> Any:
        """Refuses."""
        raise NotImplementedError("racing attention has no second derivative; use the backend math")

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        """The mapped axis becomes one more leading axis."""
        return RacingQueryGradient.apply(*leading(info.batch_size, in_dims, tensors)), 0


class RacingScores(torch.autograd.Function):
    """Q K^T with a racing dQ."""

    @staticmethod
    def forward(query: Tensor, key: Tensor) -> Tensor:
        """[..., Q, D], [..., K, D] with equal leading axes -> [..., Q, K]."""
        return explicit.scores_of(query, key)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Keeps both factors."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *d_outputs: Any) -> Any:
        """dQ = dS K, racing; dK = dS^T Q."""
        (d_scores,) = d_outputs
        query, key = ctx.saved_tensors
        return RacingQueryGradient.apply(d_scores, key), d_scores.transpose(-1, -2) @ query

    @staticmethod
    def vmap(info: Any, in_dims: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        """The mapped axis becomes one more leading axis."""
        return RacingScores.apply(*leading(info.batch_size, in_dims, tensors)), 0


def leading(size: int, in_dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Each tensor with the mapped axis first, repeated where a tensor is not mapped."""
    return [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, in_dims, strict=True)
    ]


def racing_scores(query: Tensor, key: Tensor) -> Tensor:
    """Q K^T with a racing dQ, leading axes broadcast."""
    axes = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
    return RacingScores.apply(query.expand(*axes, *query.shape[-2:]), key.expand(*axes, *key.shape[-2:]))


def attend(query: Tensor, key: Tensor, value: Tensor, options: Options, deterministic: bool) -> Tensor:
    """``math`` with racing scores; never called with ``deterministic``, which the op refuses."""
    return explicit.weighted_values(query, key, value, options, racing_scores)


RACING = register(Backend("racing", attend, can_be_deterministic=False))
