"""Backend ``math``: attention written out, softmax(scale Q K^T + mask) V, in float32 or wider.

Slow and large (it holds the whole score matrix), and deterministic wherever matrix products are.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from train.attention.backend import Backend, Options, register

NEVER = float("-inf")


def scores_of(query: Tensor, key: Tensor) -> Tensor:
    """Q K^T: [..., Q, D], [..., K, D] -> [..., Q, K]."""
    return query @ key.transpose(-1, -2)


def weighted_values(
    query: Tensor, key: Tensor, value: Tensor, options: Options, scores_of: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """[..., Q, E] in the type of ``query``. A query that may see no key gets zero, as torch's own op gives it."""
    wide = torch.promote_types(query.dtype, torch.float32)
    q, k, v = (x.to(wide) for x in (query, key, value))
    if options.enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scale = query.shape[-1] ** -0.5 if options.scale is None else options.scale
    scores = scores_of(q, k) * scale
    hidden = None
    if options.is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    if options.mask is not None:
        by_mask = ~options.mask if options.mask.dtype == torch.bool else options.mask == NEVER
        hidden = by_mask if hidden is None else hidden | by_mask
        if options.mask.dtype != torch.bool:
            scores = scores + options.mask.to(wide).masked_fill(by_mask, 0.0)
    if hidden is None:
        return (torch.softmax(scores, -1) @ v).to(query.dtype)
    # A row without any key would be NaN inside softmax, forward and backward: let it see all, then weigh it by zero.
    blind = hidden.all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(hidden & ~blind, NEVER), -1)
    return (weights.masked_fill(blind, 0.0) @ v).to(query.dtype)


def attend(query: Tensor, key: Tensor, value: Tensor, options: Options, deterministic: bool) -> Tensor:
    """The same calculation whether or not determinism was asked for."""
    return weighted_values(query, key, value, options, scores_of)


MATH = register(Backend("math", attend, can_be_deterministic=True))
