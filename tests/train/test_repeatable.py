"""A step run twice: what passes, what is refused, and what the refusal says."""

import pytest
import torch
from torch import Tensor

from analysis.errors import Refused
from train.attention import routed
from train.crn import normal
from train.repeatable import check_repeatable


def test_a_repeatable_step_passes():
    check_repeatable(lambda: {"a": torch.tensor([float("nan"), -0.0]), "b": torch.ones(2)})


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (torch.tensor([1.0, -0.0]), "relative difference 0.0e"),
        (torch.tensor([1.0 + 2**-23, 0.0]), "most likely a racing attention backward"),
        (torch.tensor([3.0, 0.0]), "most likely hidden randomness"),
        (torch.tensor([float("nan"), 0.0]), "most likely hidden randomness"),
        (torch.tensor([1.0]), "most likely hidden randomness"),
    ],
    ids=["sign of zero", "last bit", "other numbers", "nan", "other shape"],
)
def test_a_difference_is_refused_by_name(second, message):
    answers = iter([torch.tensor([1.0, 0.0]), second])
    with pytest.raises(Refused) as refusal:
        check_repeatable(lambda: {"same": torch.ones(1), "to_q.lora_A": next(answers), "later": torch.ones(2)})
    assert "'to_q.lora_A' is the first of 1 of 3 tensors" in str(refusal.value)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_gradients_kept_in_one_buffer_are_still_compared():
    buffer = torch.zeros(3)
    with pytest.raises(Refused, match="'a' is the first"):
        check_repeatable(lambda: {"a": buffer.add_(1)})


def test_other_names_are_refused():
    answers = iter([{"a": torch.ones(1)}, {"b": torch.ones(1)}])
    with pytest.raises(Refused, match="other tensors: 'a' and 1 more"):
        check_repeatable(lambda: next(answers))


def attention_step() -> dict[str, Tensor]:
    q, k, v = (normal((1, 2, 200, 8), seed=0, purpose="step", index=(i,)).requires_grad_() for i in range(3))
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return dict(zip(("d_query", "d_key", "d_value"), torch.autograd.grad(out.square().sum(), (q, k, v)), strict=True))


def test_the_check_fires_on_racing_attention_and_only_there():
    for backend in ("sdpa", "math"):
        with routed(backend, deterministic=True):
            check_repeatable(attention_step)
    refusals = []
    with routed("racing", deterministic=False):
        for _ in range(20):  # four key blocks, two heads: one pair of orders in 144 agrees
            try:
                check_repeatable(attention_step)
            except Refused as refusal:
                refusals.append(str(refusal))
    assert len(refusals) > 15
    assert all("'d_query' is the first of 1 of 3 tensors" in r and "racing attention" in r for r in refusals)
