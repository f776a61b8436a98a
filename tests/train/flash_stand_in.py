"""flash-attn 2.8's raw functions in float32 on a CPU: the same signatures, shapes, layouts and outputs in place.

As on a GPU dQ is a sum over blocks of keys, in an order that is fixed only where ``deterministic`` is obeyed.
"""

import os
from types import ModuleType

import torch

BLOCK = 64  # keys


class StandIn:
    """calls: (function, deterministic or None, samples, keys) of every call; obeys: the flag ``deterministic``."""

    def __init__(self, *, races=False, obeys=True):
        self.races, self.obeys, self.calls = races, obeys, []

    def modules(self):
        package, interface = ModuleType("flash_attn"), ModuleType("flash_attn.flash_attn_interface")
        package.__version__ = "2.8.3"
        package.flash_attn_interface = interface
        for name in ("forward", "varlen_forward", "backward", "varlen_backward"):
            setattr(interface, f"_flash_attn_{name}", getattr(self, name))
        return {"flash_attn": package, "flash_attn.flash_attn_interface": interface}

    def forward(
        self, q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes,
        return_softmax,
    ):  # fmt: skip
        check(q, k, v)
        assert (dropout_p, window_size_left, window_size_right, softcap, alibi_slopes) == (0.0, -1, -1, 0.0, None)
        self.calls.append(("forward", None, len(q), k.shape[1]))
        out, sums = zip(*[attend(*x, softmax_scale, causal) for x in zip(q, k, v, strict=True)], strict=True)
        return torch.stack(out), torch.stack(sums), q.new_empty(0), torch.empty(2, dtype=torch.int64)

    def varlen_forward(
        self, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
        window_size_left=-1, window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False,
        block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False,
    ):  # fmt: skip
        check(q, k, v)
        self.calls.append(("varlen_forward", None, len(cu_seqlens_q) - 1, max_seqlen_k))
        parts = split(cu_seqlens_q, max_seqlen_q, q), split(cu_seqlens_k, max_seqlen_k, k, v)
        answers = [attend(*one, *keys, softmax_scale, causal) for one, keys in zip(*parts, strict=True)]
        out, sums = zip(*answers, strict=True)
        return torch.cat(out), torch.cat(sums, 1), q.new_empty(0), torch.empty(2, dtype=torch.int64)

    def backward(
        self, dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left,
        window_size_right, softcap, alibi_slopes, deterministic, rng_state=None,
    ):  # fmt: skip
        check(dout, q, k, v, out, dq, dk, dv)
        assert softmax_lse.shape == (q.shape[0], q.shape[2], q.shape[1])
        assert softmax_lse.is_contiguous()
        self.calls.append(("backward", deterministic, len(q), k.shape[1]))
        for one in zip(dout, q, k, v, out, softmax_lse, dq, dk, dv, strict=True):
            self.differentiate(*one, softmax_scale, causal, deterministic)
        return torch.empty_like(softmax_lse)

    def varlen_backward(
        self, dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes, deterministic,
        rng_state=None, zero_tensors=False,
    ):  # fmt: skip
        check(dout, q, k, v, out, dq, dk, dv)
        assert softmax_lse.shape == (q.shape[1], q.shape[0])
        assert softmax_lse.is_contiguous()
        self.calls.append(("varlen_backward", deterministic, len(cu_seqlens_q) - 1, max_seqlen_k))
        queries = split(cu_seqlens_q, max_seqlen_q, dout, q, out, softmax_lse.T, dq)
        for (d_o, one, o, sums, d_q), (key, value, d_k, d_v) in zip(
            queries, split(cu_seqlens_k, max_seqlen_k, k, v, dk, dv), strict=True
        ):
            self.differentiate(d_o, one, key, value, o, sums.T, d_q, d_k, d_v, softmax_scale, causal, deterministic)
        return torch.empty_like(softmax_lse)

    def differentiate(self, dout, q, k, v, out, sums, dq, dk, dv, scale, causal, deterministic):
        """Of one sample, into dq, dk and dv, by the softmax that the forward's ``sums`` give back."""
        d_o, q, k, v, o = (x.float().transpose(0, 1) for x in (dout, q, k, v, out))
        runs = q.shape[0] // k.shape[0]
        k, v = (x.repeat_interleave(runs, 0) for x in (k, v))
        weights = torch.where(hidden(q, k, causal), 0.0, (scale * q @ k.mT - sums[..., None]).exp())
        d_scores = scale * weights * (d_o @ v.mT - (d_o * o).sum(-1, keepdim=True))
        blocks = [d_scores[..., i : i + BLOCK] @ k[:, i : i + BLOCK] for i in range(0, k.shape[1], BLOCK)]
        if self.races and not (deterministic and self.obeys):
            blocks.sort(key=lambda _: os.urandom(8))
        total = torch.zeros_like(q)
        for block in blocks:
            # Rounded more than on a GPU where it races, so that the order shows in a few thousand numbers.
            total = (total + block).bfloat16().float() if self.races else total + block
        dq.copy_(total.transpose(0, 1))
        for target, found in ((dk, d_scores.mT @ q), (dv, weights.mT @ d_o)):
            target.copy_(found.unflatten(0, (-1, runs)).sum(1).transpose(0, 1))


def check(*tensors):
    """What the kernels refuse."""
    for x in tensors:
        assert x.dtype in (torch.bfloat16, torch.float16)
        assert x.dtype == tensors[0].dtype
        assert x.stride(-1) == 1
        assert x.shape[-1] in range(8, 257, 8)


def split(ends, longest, *tensors):
    """One tuple a sample of packed tensors [tokens, ...]; views, so that outputs can be written into."""
    assert ends.dtype == torch.int32
    lengths = ends.diff().tolist()
    assert max(lengths) <= longest
    assert sum(lengths) == len(tensors[0])
    return list(zip(*[x.split(lengths) for x in tensors], strict=True))


def hidden(q, k, causal):
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1 + k.shape[-2] - q.shape[-2]) & causal


def attend(q, k, v, scale, causal):
    """Output [Q, H, D] and sums [H, Q] of one sample; zero and infinity where there is no key."""
    query, key, value = (x.float().transpose(0, 1) for x in (q, k, v))
    key, value = (x.repeat_interleave(query.shape[0] // x.shape[0], 0) for x in (key, value))
    scores = (scale * query @ key.mT).masked_fill(hidden(query, key, causal), -torch.inf)
    sums = scores.logsumexp(-1) if key.shape[1] else torch.full(query.shape[:2], torch.inf)
    return ((scores - sums[..., None]).exp() @ value).transpose(0, 1).to(q.dtype), sums
