"""Attention kernels of a CUDA device: who races, and who repeats."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from analysis.errors import UsageError
from train.attention import BACKENDS, Options, routed
from train.attention.backend import backend_named
from train.crn import normal
from train.determinism import strict_within

pytestmark = pytest.mark.gpu

REPEATS = 20


def drawn(index, tokens=4608):
    return normal((1, 24, tokens, 128), seed=0, purpose="gpu test", index=(index,)).to("cuda", torch.bfloat16)


def distinct(attend):
    """How many different (output, dQ, dK, dV) in ``REPEATS``, with other work on the device."""
    seen, other, load = set(), torch.cuda.Stream(), torch.ones(2048, 2048, device="cuda")
    for _ in range(REPEATS):
        with torch.cuda.stream(other):
            load = torch.tanh(load @ load)
        q, k, v = (drawn(i).requires_grad_() for i in range(3))
        out = attend(q, k, v)
        found = torch.autograd.grad(out, (q, k, v), drawn(3))
        seen.add(b"".join(x.detach().view(torch.int16).cpu().numpy().tobytes() for x in (out, *found)))
    return len(seen)


def test_torchs_attention_races_unless_strict():
    assert distinct(scaled_dot_product_attention) > 1
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.warns(UserWarning, match="deterministic"):
            assert distinct(scaled_dot_product_attention) > 1
    finally:
        torch.use_deterministic_algorithms(False)
    with strict_within(), routed("sdpa", deterministic=True):
        assert distinct(torch.nn.functional.scaled_dot_product_attention) == 1


@pytest.fixture
def flash():
    try:
        return backend_named("flash")
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("padded", [False, True])
def test_flash_repeats_and_agrees_with_math(padded, flash):
    mask = (torch.arange(4608, device="cuda") < 4000)[None, None, None] if padded else None
    with strict_within():
        assert distinct(lambda q, k, v: flash.attend(q, k, v, Options(mask=mask), True)) == 1
        q, k, v = (drawn(i)[:, :2] for i in range(3))
        ours = flash.attend(q, k, v, Options(mask=mask), True).float()
        exact = BACKENDS["math"].attend(q.float(), k.float(), v.float(), Options(mask=mask), True)
    assert (ours - exact).norm() < 2**-7 * exact.norm()
