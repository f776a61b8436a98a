"""The worked example of probes.own, run as it is printed, and the entry's errors."""

import re
import textwrap

import numpy as np
import pytest
import torch

import probes.own
from analysis.errors import Refused, UsageError
from probes import probe


def example():
    return textwrap.dedent(re.search(r"\n\n( *import torch\n.*)\Z", probes.own.__doc__, re.DOTALL)[1])


def test_the_documented_example_runs_and_answers(capsys):
    names = {}
    exec(example(), names)
    dataset = names["dataset"]
    assert list(dataset.block.values) == ["0", "2"]
    assert dataset.done.all()
    assert "harmful" in capsys.readouterr().out
    entry = float(
        dataset.gram_image.sum("block").sel(
            metric="raw", sigma=0.6, arm="native", image="x0", arm_2="halved", image_2="x1"
        )
    )
    means = []
    for arm, image in ((names["native"], "x0"), (names["halved"], "x1")):
        rows = []
        for draw in range(4):
            loss = names["loss"](dict(names["net"].named_parameters()), *arm(image, draw, 0.6))
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(names["net"].parameters()))]))
        means.append(torch.stack(rows).double().mean(0))
    assert entry == pytest.approx(float(means[0] @ means[1]), rel=1e-5)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Linear(3, 3)


def run(net, loss, arm=lambda image, draw, sigma: (torch.ones(3) * len(image), torch.tensor(sigma))):
    return probe(net, loss, {"native": arm, "same": arm}, ["a", "bb", "ccc"], draws=2, sigmas=[0.5])


def quadratic(parameters, x, sigma):
    return (torch.nn.functional.linear(x, parameters["weight"], parameters["bias"]) ** 2).sum() * sigma


def test_equal_arms_have_equal_grams(net):
    gram = run(net, quadratic).gram_image.sum("block").isel(metric=0, sigma=0).values
    assert np.array_equal(gram[0, :, 0], gram[1, :, 1])


def test_a_loss_that_draws_for_itself_is_refused(net):
    def noisy(image, draw, sigma):
        return torch.randn(3), torch.tensor(sigma)

    with pytest.raises(Refused):
        run(net, quadratic, noisy)


def test_nan_and_nothing_to_train_are_named(net):
    with pytest.raises(UsageError, match=r"not finite: arm native, sigma 0.5, image a draw 0, block"):
        run(net, lambda parameters, x, sigma: quadratic(parameters, x, sigma) * float("nan"))
    with pytest.raises(UsageError, match="Linear: no trainable parameter"):
        run(net.requires_grad_(False), quadratic)
