"""The backend ``flash`` as it is, over a numerical stand-in of the package's raw functions.

Its kernels round outputs to bfloat16, so it is held to the backend ``math`` in float64 at the same rounded inputs,
within 2^-8 of the norm.
"""

import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import grad, vmap

from analysis.errors import UsageError
from train.attention import BACKENDS, Options, route, routed
from train.attention.backend import backend_named
from train.attention.flash_package import flash_backward, flash_forward
from train.crn import normal

ROUNDING = 2**-8
SAMPLES, HEADS, QUERIES, KEYS, WIDTH = 3, 4, 21, 150, 20  # a head dimension that has to be padded
SEEN = torch.arange(KEYS) < torch.tensor([KEYS, 70, 9])[:, None]
SEEN[1, 3:40] = False  # hidden keys need not be the last ones


def drawn(*shape: int, index: int) -> Tensor:
    return normal(shape, seed=0, purpose="flash test", index=(index,)).bfloat16()


def qkv(queries=QUERIES, keys=KEYS, heads=HEADS, key_heads=HEADS) -> tuple[Tensor, ...]:
    shapes = (heads, queries), (key_heads, keys), (key_heads, keys)
    return tuple(drawn(SAMPLES, *shape, WIDTH, index=i) for i, shape in enumerate(shapes))


def differentiated(name, tensors, options=Options(), *, deterministic=True):
    """Output, dQ, dK and dV of a fixed weighted sum, in float64."""
    q, k, v = (x.clone().requires_grad_() for x in tensors)
    out = BACKENDS[name].attend(q, k, v, options, deterministic)
    weight = drawn(*out.shape, index=9).to(out.dtype)
    return [x.detach().double() for x in (out, *torch.autograd.grad((out * weight).sum(), (q, k, v)))]


def assert_near(ours, theirs, tolerance=ROUNDING):
    for found, expected in zip(ours, theirs, strict=True):
        assert found.shape == expected.shape
        assert (found - expected).norm() < tolerance * expected.norm()


OPTIONS = {
    "plain": Options(),
    "scale": Options(scale=0.7),
    "padded": Options(mask=SEEN[:, None, None]),
    "padded alike": Options(mask=SEEN[1]),
    "expanded": Options(mask=SEEN[:, None, None].expand(-1, HEADS, QUERIES, -1)),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_flash_against_math(options, flash_attn):
    stand_in = flash_attn()
    tensors = qkv()
    assert not any(limit.holds(*tensors, options) for limit in BACKENDS["flash"].limits)
    found = differentiated("flash", tensors, options)
    assert_near(found, differentiated("math", [x.double() for x in tensors], options))
    kind = "" if options.mask is None else "varlen_"
    assert [call[:2] for call in stand_in.calls] == [(f"{kind}forward", None), (f"{kind}backward", True)]


def test_flash_causal_and_grouped_against_math(flash_attn):
    flash_attn()
    square, grouped = qkv(queries=KEYS), qkv(key_heads=2)
    wide = [[x.double() for x in tensors] for tensors in (square, grouped)]
    for tensors, double, options in (
        (square, wide[0], Options(is_causal=True)),
        (grouped, wide[1], Options(enable_gqa=True)),
        (grouped, wide[1], Options(mask=SEEN[:, None, None], enable_gqa=True)),
    ):
        assert_near(differentiated("flash", tensors, options), differentiated("math", double, options))


def test_a_hidden_key_gets_no_gradient_and_a_blind_sample_gives_zero(flash_attn):
    flash_attn()
    seen = SEEN.clone()
    seen[2] = False
    options = Options(mask=seen[:, None, None])
    out, d_query, d_key, d_value = differentiated("flash", qkv(), options)
    assert_near(
        [x[:2] for x in (out, d_query)],
        [x[:2] for x in differentiated("math", [x.double() for x in qkv()], options)[:2]],
    )
    assert not out[2].any()
    assert not d_query[2].any()
    for d in (d_key, d_value):
        assert not d.masked_select(~seen[:, None, :, None]).any()
        assert d.masked_select(seen[:, None, :, None]).any()


@pytest.mark.parametrize("padded", [False, True])
def test_flash_mapped_gradients_equal_a_loop(padded, flash_attn):
    """vmap(grad(...)) with a mapped and a shared tensor: to the bit what sample after sample gives."""
    stand_in = flash_attn()
    q, k, v = qkv()

    def loss(q: Tensor, v: Tensor, k: Tensor, seen: Tensor) -> Tensor:
        mask = seen[None, None, None] if padded else None
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask)
        return out.float().square().sum()

    with routed("flash", deterministic=True) as calls:
        mapped = vmap(grad(loss, (0, 1, 2)), (0, 0, None, 0))(q, v, k[0], SEEN)
        loops = [grad(loss, (0, 1, 2))(q[i], v[i], k[0], SEEN[i]) for i in range(SAMPLES)]
    for i, one in enumerate(loops):
        assert all(torch.equal(ours[i], theirs) for ours, theirs in zip(mapped, one, strict=True))
    assert calls.by_backend() == {("flash", True): 1 + SAMPLES}
    assert [samples for _, _, samples, _ in stand_in.calls] == [SAMPLES, SAMPLES] + [1, 1] * SAMPLES


@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # one that inductor imports
@pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning")  # the compiler does
def test_flash_compiled_step(compiler, flash_attn):
    """One graph, with a call that flash takes, one it takes with padding and one that goes to sdpa."""
    stand_in = flash_attn()
    bias = drawn(QUERIES, KEYS, index=5)

    def step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return sum(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask) for mask in (None, SEEN[:, None, None], bias)
        )

    def gradients(step):
        q, k, v = (x.clone().requires_grad_() for x in qkv())
        return torch.autograd.grad(step(q, k, v).float().square().sum(), (q, k, v))

    torch.compiler.reset()
    with routed("flash", deterministic=True) as eager:
        expected = gradients(step)
    stand_in.calls.clear()
    compiled = torch.compile(step, backend=compiler, fullgraph=True)
    with routed("flash", deterministic=True) as calls:
        found = gradients(compiled)
    assert calls.by_backend() == eager.by_backend()
    assert sorted(calls.by_backend().values()) == [1, 2]
    assert_near([x.double() for x in found], [x.double() for x in expected])
    assert [deterministic for name, deterministic, *_ in stand_in.calls if "backward" in name] == [True, True]


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_flag_is_passed_in_every_backward(deterministic, flash_attn):
    """Without it, this stand-in races."""
    stand_in = flash_attn(races=True)
    for options in (Options(), Options(mask=SEEN[:, None, None])):
        runs = [differentiated("flash", qkv(), options, deterministic=deterministic) for _ in range(20)]
        assert (len({run[1].numpy().tobytes() for run in runs}) > 1) == (not deterministic)
        assert all(torch.equal(run[i], runs[0][i]) for run in runs for i in (0, 2, 3))
    flags = [flag for name, flag, *_ in stand_in.calls if "backward" in name]
    assert flags == [deterministic] * 40


NOT_TAKEN = {
    "a mask that is added to the scores": (qkv(), {"attn_mask": drawn(QUERIES, KEYS, index=5)}),
    "a mask that differs between queries or heads": (
        qkv(),
        {"attn_mask": SEEN[:, None, None].repeat(1, 1, QUERIES, 1)},
    ),
    "causal over unequal lengths": (qkv(), {"is_causal": True}),
    "float64": ([x.double() for x in qkv()], {}),
    "head dimension": ([*qkv()[:2], qkv()[2][..., :8]], {}),
    "heads that are broadcast": ([qkv()[0], *(x[:, :1] for x in qkv()[1:])], {}),
    "leading axes that are broadcast": ([qkv()[0], *(x[:1] for x in qkv()[1:])], {}),
}


@pytest.mark.parametrize("reason", NOT_TAKEN)
def test_what_the_kernel_cannot_take_goes_to_sdpa_and_is_told(reason, flash_attn, monkeypatch, capsys):
    stand_in = flash_attn()
    monkeypatch.setattr(route, "told", set())
    tensors, how = NOT_TAKEN[reason]
    with routed("flash", deterministic=True) as calls:
        found = [F.scaled_dot_product_attention(*tensors, **how) for _ in range(2)]
    expected = F.scaled_dot_product_attention(*tensors, **how)
    assert torch.equal(found[0], expected)
    assert calls.summary() == {f"sdpa instead of flash ({reason}), deterministic": 2}
    assert calls.not_deterministic == 0
    assert stand_in.calls == []
    with routed("flash", deterministic=True):
        F.scaled_dot_product_attention(*tensors, **how)
    assert capsys.readouterr().err == f"warning: attention by sdpa instead of flash ({reason}): 2 calls so far\n"


def test_float32_is_rounded_and_that_is_told(flash_attn, monkeypatch, capsys):
    flash_attn()
    monkeypatch.setattr(route, "told", set())
    tensors = [x.float() for x in qkv()]
    with routed("flash", deterministic=True) as calls:
        out = F.scaled_dot_product_attention(*tensors)
        with torch.autocast("cpu", torch.float16):
            under_autocast = F.scaled_dot_product_attention(*tensors)
    assert (out.dtype, under_autocast.dtype) == (torch.float32, torch.float16)
    assert_near([under_autocast.double()], [out.double()])
    assert calls.by_backend() == {("flash (float32 rounded to bfloat16)", True): 1, ("flash", True): 1}
    assert "flash (float32 rounded to bfloat16): 1 calls" in capsys.readouterr().err


def test_tensors_without_heads_or_batch(flash_attn):
    flash_attn()
    with routed("flash", deterministic=True):
        for q, k, v in (qkv(), [x[0] for x in qkv()], [x[0, 0] for x in qkv()], [x[:, None] for x in qkv()]):
            found = F.scaled_dot_product_attention(q, k, v)
            wide = BACKENDS["math"].attend(q.double(), k.double(), v.double(), Options(), True)
            assert_near([found.double()], [wide])


def test_the_raw_ops_keep_torchs_rules(flash_attn):
    """Schema, fake shapes and strides, under torch's own check."""
    flash_attn()
    q, k, v = (x.transpose(1, 2) for x in qkv())
    tests = ("test_schema", "test_faketensor")
    for seen in (None, SEEN):
        torch.library.opcheck(flash_forward, (q, k, v, seen, 0.2, False), test_utils=tests)
        out, sums = flash_forward(q, k, v, seen, 0.2, False)
        torch.library.opcheck(flash_backward, (out, q, k, v, out, sums, seen, 0.2, False, True), test_utils=tests)


def test_flash_has_no_second_derivative(flash_attn):
    flash_attn()
    q, k, v = (x.requires_grad_() for x in qkv())
    out = BACKENDS["flash"].attend(q, k, v, Options(), True)
    (d_query,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad(d_query.sum(), q)


def test_a_missing_package_is_named_when_it_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(UsageError, match=r"not installed; pip install 'sigma-probes\[flash\]'"):
        backend_named("flash")
    with pytest.raises(UsageError, match="not installed"), routed("flash", deterministic=True):
        pass


@pytest.mark.parametrize("version", ["2.6.3", "3.0.0", "unknown"])
def test_other_versions_are_refused(version, flash_attn):
    flash_attn()
    sys.modules["flash_attn"].__version__ = version
    with pytest.raises(UsageError, match=rf"takes flash-attn 2\.7 to below 3, found {version}"):
        backend_named("flash")


def test_real_kernels_are_not_called_on_a_cpu(flash_attn, monkeypatch):
    flash_attn()
    monkeypatch.setitem(sys.modules, "flash_attn_2_cuda", ModuleType("flash_attn_2_cuda"))
    with pytest.raises(UsageError, match="flash on cpu: its kernels run on cuda only"):
        BACKENDS["flash"].attend(*qkv(), Options(), True)
