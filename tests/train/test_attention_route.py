"""The interception: what it counts, refuses and restores, eager, nested and mapped."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap

from analysis.errors import Refused, UsageError
from train.attention import routed
from train.attention.sdpa import torch_sdpa
from train.crn import normal
from train.determinism import strict_within

ON_CPU = ["math", "racing", "sdpa"]  # flash has a file of its own


class Attention(nn.Module):
    """Self-attention of two heads on [B, S, 16]; projections fixed by a seed."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48, bias=False)
        self.qkv.weight.data = normal((48, 16), seed=0, purpose="weights", index=(index,)) / 4

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class TwoLayers(nn.Module):
    """Two of them in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Attention(0), Attention(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x + self.first(x))


@pytest.fixture
def model() -> TwoLayers:
    return TwoLayers()


@pytest.fixture
def tokens() -> Tensor:
    return normal((2, 150, 16), seed=0, purpose="tokens")


def gradients(model: nn.Module, tokens: Tensor) -> dict[str, Tensor]:
    loss = model(tokens).square().mean()
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, tuple(model.parameters())), strict=True))


def assert_near(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, expected in theirs.items():
        assert (ours[name] - expected).norm() < 1e-5 * expected.norm(), name


@pytest.mark.parametrize("backend", ON_CPU)
def test_calls_are_counted_with_their_module(backend, model, tokens):
    with routed(backend, deterministic=False, model=model) as calls:
        for _ in range(3):
            gradients(model, tokens)
    assert calls.counts == {(backend, False, "first"): 3, (backend, False, "second"): 3}
    assert calls.by_backend() == {(backend, False): 6}
    assert calls.by_module() == {"first": 3, "second": 3}
    assert (calls.total, calls.not_deterministic) == (6, 6)
    model(tokens)
    assert calls.total == 6


def test_without_a_model_names_are_empty(model, tokens):
    with routed("math", deterministic=True) as calls:
        model(tokens)
    assert calls.counts == {("math", True, ""): 2}
    assert calls.not_deterministic == 0


def test_torch_is_put_back_also_after_an_exception(model, tokens):
    with pytest.raises(RuntimeError), routed("math", deterministic=True, model=model):
        model(tokens[..., :3])
    assert F.scaled_dot_product_attention is torch_sdpa
    assert torch.backends.cuda.cudnn_sdp_enabled()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_names_survive_a_forward_that_fails(model, tokens):
    with routed("math", deterministic=True, model=model) as calls:
        with pytest.raises(RuntimeError):
            model(tokens[..., :3])
        F.scaled_dot_product_attention(tokens, tokens, tokens)
        model(tokens)
    assert calls.by_module() == {"": 1, "first": 1, "second": 1}


def test_an_inner_route_computes_and_the_outer_one_counts(model, tokens):
    with routed("sdpa", deterministic=False, model=model) as outer:
        model(tokens)
        with routed("racing", deterministic=False) as inner:
            model(tokens)
        model(tokens)
    assert inner.counts == {("racing", False, ""): 2}
    assert outer.by_backend() == {("sdpa", False): 4, ("racing", False): 2}
    assert outer.by_module() == {"first": 3, "second": 3}
    assert F.scaled_dot_product_attention is torch_sdpa


def test_no_racing_inside_a_deterministic_route():
    with routed("sdpa", deterministic=True):
        with pytest.raises(Refused, match="inside a deterministic route"), routed("math", deterministic=False):
            pass
        with routed("math", deterministic=True):
            pass
    with routed("math", deterministic=False):
        pass


def test_racing_cannot_be_deterministic():
    with pytest.raises(Refused, match="'racing' cannot be deterministic"), routed("racing", deterministic=True):
        pass
    assert F.scaled_dot_product_attention is torch_sdpa


def test_unknown_backend_lists_those_there_are():
    with pytest.raises(UsageError, match="takes flash, math, racing, sdpa"), routed("sage", deterministic=False):
        pass


def test_foreign_replacement_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", print)
        with pytest.raises(Refused, match=r"was replaced by .*print"), routed("sdpa", deterministic=True):
            pass
    with pytest.raises(Refused, match="inside a route"), routed("sdpa", deterministic=True):
        F.scaled_dot_product_attention = print
    assert F.scaled_dot_product_attention is torch_sdpa


@pytest.mark.parametrize("backend", ON_CPU)
def test_dropout_is_refused(backend, tokens):
    with routed(backend, deterministic=False), pytest.raises(UsageError, match=r"attention dropout 0\.1"):
        F.scaled_dot_product_attention(tokens, tokens, tokens, dropout_p=0.1)


def test_cudnn_is_off_in_a_deterministic_route_only():
    with routed("sdpa", deterministic=False):
        assert torch.backends.cuda.cudnn_sdp_enabled()
    with routed("sdpa", deterministic=True):
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("backend", ON_CPU)
def test_mapped_gradients_against_a_loop(backend, model, tokens):
    """vmap(grad(...)) over samples, no warning, one count per chunk."""
    parameters = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x[None],)).square().mean()

    with routed(backend, deterministic=False, model=model) as calls:
        mapped = vmap(grad(loss), (None, 0))({k: p.detach() for k, p in parameters.items()}, tokens)
    assert calls.by_module() == {"first": 1, "second": 1}
    for i in range(len(tokens)):
        assert_near({name: g[i] for name, g in mapped.items()}, gradients(model, tokens[i : i + 1]))


@pytest.mark.parametrize("backend", ON_CPU)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # one that inductor imports
@pytest.mark.filterwarnings("ignore:.*Function.*should not be instantiated:DeprecationWarning")  # the compiler does
@pytest.mark.parametrize("compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_step(backend, compiler, model, tokens):
    """One graph, compiled once for all routes; every execution counted; near the eager step; only racing races."""
    eager = gradients(model, tokens)
    torch.compiler.reset()
    compiled = torch.compile(model, backend=compiler, fullgraph=True)
    with routed(backend, deterministic=False) as calls:
        repeats = [gradients(compiled, tokens)]
    assert calls.counts == {(backend, False, ""): 2}
    with torch.compiler.set_stance("fail_on_recompile"), routed(backend, deterministic=False) as again:
        repeats += [gradients(compiled, tokens) for _ in range(12)]
    assert again.counts == {(backend, False, ""): 24}
    assert calls.total == 2
    for repeat in [*repeats, gradients(compiled, tokens)]:  # the last one outside of any route
        assert_near({name.removeprefix("_orig_mod."): g for name, g in repeat.items()}, eager)
    assert again.total == 24
    seen = {b"".join(g.numpy().tobytes() for g in repeat.values()) for repeat in repeats}
    assert (len(seen) == 1) == (backend != "racing")


def test_strict_mode_accepts_every_backend_but_racing(model, tokens):
    with strict_within():
        for backend in ("sdpa", "math"):
            with routed(backend, deterministic=True) as calls:
                gradients(model, tokens)
            assert calls.by_backend() == {(backend, True): 2}
