"""Each backend of the attention op, on bare tensors: against loops, against torch, and how racing races."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from analysis.errors import Refused, UsageError
from train.attention import BACKENDS, Backend, Options, register
from train.attention.backend import backend_named
from train.attention.racing import RacingScores
from train.attention.sdpa import require_determinism
from train.crn import normal

ON_CPU = ["math", "racing", "sdpa"]  # flash has a file of its own


def drawn(*shape: int, index: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return normal(shape, seed=0, purpose="attention test", index=(index,)).to(dtype)


def qkv(queries: int, keys: int, heads: int = 4, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    return (
        drawn(2, heads, queries, 16, index=0, dtype=dtype),
        drawn(2, heads, keys, 16, index=1, dtype=dtype),
        drawn(2, heads, keys, 16, index=2, dtype=dtype),
    )


def run(name: str, tensors: tuple[Tensor, ...], options: Options = Options()) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Output and the gradients of a fixed weighted sum of it."""
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    out = BACKENDS[name].attend(q, k, v, options, False)
    weight = drawn(*out.shape, index=9, dtype=out.dtype)
    return out.detach(), torch.autograd.grad((out * weight).sum(), (q, k, v))


def written_as_loops(q: Tensor, k: Tensor, v: Tensor, options: Options) -> Tensor:
    """One number at a time, in Python floats."""
    batch, heads, queries, width = q.shape
    keys, scale = k.shape[2], width**-0.5 if options.scale is None else options.scale
    out = torch.zeros(batch, heads, queries, v.shape[3], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            source = h // (heads // k.shape[1])
            for i in range(queries):
                weights = []
                for j in range(keys):
                    score = scale * sum((q[b, h, i, d] * k[b, source, j, d]).item() for d in range(width))
                    if options.mask is not None:
                        entry = options.mask.expand(batch, heads, queries, keys)[b, h, i, j].item()
                        score = (score if entry else -math.inf) if isinstance(entry, bool) else score + entry
                    weights.append(0.0 if options.is_causal and j > i else math.exp(score))
                for j in range(keys):
                    out[b, h, i] += weights[j] / sum(weights) * v[b, source, j]
    return out


BOOL_MASK = torch.arange(7) % 3 != torch.arange(5)[:, None] % 3
OPTIONS = {
    "plain": Options(),
    "causal": Options(is_causal=True),
    "scale": Options(scale=0.7),
    "bool mask": Options(mask=BOOL_MASK),
    "bool mask per sample": Options(mask=torch.stack([BOOL_MASK, ~BOOL_MASK])[:, None]),
    "float mask": Options(mask=drawn(5, 7, index=5).double().masked_fill(~BOOL_MASK, -math.inf)),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_math_against_loops(options):
    q, k, v = (x[:, :2, :, :6] for x in qkv(5, 7, dtype=torch.float64))
    out = BACKENDS["math"].attend(q, k, v, options, True)
    torch.testing.assert_close(out, written_as_loops(q, k, v, options), atol=1e-13, rtol=0)


def test_math_with_grouped_queries_against_loops():
    q, k, v = drawn(2, 4, 5, 6).double(), drawn(2, 2, 7, 6, index=1).double(), drawn(2, 2, 7, 3, index=2).double()
    options = Options(enable_gqa=True)
    out = BACKENDS["math"].attend(q, k, v, options, True)
    torch.testing.assert_close(out, written_as_loops(q, k, v, options), atol=1e-13, rtol=0)


@pytest.mark.parametrize("name", ON_CPU)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_backends_agree_with_torch(name, options):
    """Output and gradients in float64 against torch's op."""
    tensors = qkv(5, 7, dtype=torch.float64)
    out, gradients = run(name, tensors, options)
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    expected = scaled_dot_product_attention(q, k, v, options.mask, 0.0, options.is_causal, scale=options.scale)
    torch.testing.assert_close(out, expected.detach(), atol=1e-12, rtol=0)
    weight = drawn(*out.shape, index=9).double()
    for ours, theirs in zip(gradients, torch.autograd.grad((expected * weight).sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ON_CPU)
def test_grouped_queries_agree_with_torch(name):
    tensors = drawn(2, 4, 5, 6), drawn(2, 2, 7, 6, index=1), drawn(2, 2, 7, 6, index=2)
    out, gradients = run(name, tensors, Options(enable_gqa=True))
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    expected = scaled_dot_product_attention(q, k, v, enable_gqa=True)
    for ours, theirs in zip(
        (out, *gradients),
        (expected.detach(), *torch.autograd.grad((expected * drawn(*out.shape, index=9)).sum(), (q, k, v))),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", ["math", "racing"])
@pytest.mark.parametrize("mask", [BOOL_MASK, torch.zeros(5, 7)], ids=["bool", "float"])
def test_a_query_without_keys_gets_zero(name, mask):
    hidden = mask.clone()
    hidden[2] = False if mask.dtype == torch.bool else -math.inf
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        out, gradients = run(name, qkv(5, 7), Options(mask=hidden))
    assert (out[:, :, 2] == 0).all()
    assert all(g.isfinite().all() for g in gradients)
    assert (gradients[0][:, :, 2] == 0).all()


@pytest.mark.parametrize("name", ["math", "racing"])
def test_half_precision_is_computed_in_float32(name):
    tensors = qkv(5, 7, dtype=torch.bfloat16)
    out, gradients = run(name, tensors)
    wide, _ = run(name, (tensors[0].float(), tensors[1].float(), tensors[2].float()))
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, wide.bfloat16())
    assert {g.dtype for g in gradients} == {torch.bfloat16}


def test_racing_differs_from_itself_in_the_query_gradient_alone():
    """Five key blocks, 20 repeats: dQ wobbles by about 1e-7; output, dK and dV are those of math to the bit."""
    tensors = qkv(100, 257)
    out, (_, d_key, d_value) = run("math", tensors)
    repeats = [run("racing", tensors) for _ in range(20)]
    for racing_out, (_, racing_d_key, racing_d_value) in repeats:
        assert torch.equal(racing_out, out)
        assert torch.equal(racing_d_key, d_key)
        assert torch.equal(racing_d_value, d_value)
    d_queries = torch.stack([gradients[0] for _, gradients in repeats])
    assert len({d.numpy().tobytes() for d in d_queries}) == 20
    wobble = (d_queries - d_queries.mean(0)).flatten(1).norm(dim=1) / d_queries.mean(0).norm()
    assert 1e-8 < wobble.min() < wobble.max() < 1e-6


@pytest.mark.parametrize(("keys", "races"), [(64, False), (65, False), (128, False), (129, True), (192, True)])
def test_racing_needs_three_key_blocks(keys, races):
    tensors = qkv(30, keys)
    seen = {run("racing", tensors)[1][0].numpy().tobytes() for _ in range(20)}
    assert (len(seen) > 1) == races


def test_racing_takes_no_notice_of_seeds():
    tensors = qkv(30, 257)
    seen = set()
    for _ in range(5):
        torch.manual_seed(0)
        seen.add(run("racing", tensors)[1][0].numpy().tobytes())
    assert len(seen) == 5


def test_racing_moves_no_global_random_state():
    before = torch.get_rng_state()
    run("racing", qkv(30, 257))
    assert torch.equal(torch.get_rng_state(), before)


def test_racing_broadcasts_leading_axes():
    q, k, v = qkv(30, 140)
    out, gradients = run("racing", (q, k[:1, :1], v[:1, :1]))
    expected, expected_gradients = run("math", (q, k[:1, :1], v[:1, :1]))
    torch.testing.assert_close(out, expected)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_racing_scores_mapped_over_any_axis():
    """The mapped axis of the query in the middle, the key shared: gradients of each sample as in a loop."""
    q, k, weight = drawn(4, 3, 30, 16), drawn(4, 140, 16, index=1), drawn(4, 30, 140, index=2)

    def loss(q: Tensor, k: Tensor) -> Tensor:
        return (RacingScores.apply(q, k) * weight).sum()

    d_query, d_key = torch.func.vmap(torch.func.grad(loss, (0, 1)), (1, None))(q, k)
    for i in range(3):
        torch.testing.assert_close(d_query[i], weight @ k, atol=1e-4, rtol=1e-5)
        torch.testing.assert_close(d_key[i], weight.mT @ q[:, i], atol=1e-4, rtol=1e-5)


def test_racing_has_no_second_derivative():
    q, k, v = (x.requires_grad_() for x in qkv(5, 7))
    out = BACKENDS["racing"].attend(q, k, v, Options(), False)
    (d_query,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(d_query.sum(), q)


def test_unknown_backend():
    with pytest.raises(UsageError, match="'sage': takes flash, math, racing, sdpa"):
        backend_named("sage")


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="'math' exists already"):
        register(Backend("math", BACKENDS["sdpa"].attend, can_be_deterministic=True))


def test_deterministic_sdpa_on_cuda_needs_the_strict_mode():
    require_determinism("cpu")
    with pytest.raises(Refused, match="without warn_only"):
        require_determinism("cuda")
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        with pytest.raises(Refused, match="without warn_only"):
            require_determinism("cuda")
        torch.use_deterministic_algorithms(True)
        with pytest.raises(Refused, match="cuDNN"):
            require_determinism("cuda")
    finally:
        torch.use_deterministic_algorithms(False)
    with pytest.raises(Refused, match="cpu and cuda only"):
        require_determinism("mps")
