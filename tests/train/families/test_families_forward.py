"""Each family against a call of diffusers' model written by hand, in layout, time, blocks and precision."""

import pytest
import torch

from analysis.errors import UsageError
from train.execution import Execution, executed_as
from train.families import block_of, blocks, image_tokens, unconditional
from train.objective import StepInput
from train.plan import NATIVE
from train.step import step_loss

#: Tokens along a side that the tiny models have positions for.
LONGEST = {"flux": None, "sd3": 24, "qwenimage": 4096, "wan": 32, "z_image": 32, "cosmos": 16}


def given(tiny_family, sides=(8, 12), batch=2, text=3, seed=0):
    """A random step of a batch."""
    family, g = tiny_family.family(), torch.Generator().manual_seed(seed)
    x, target = torch.randn(2, batch, family.channels, *tiny_family.frames, *sides, generator=g)
    condition = {
        key: torch.randn(batch, *[text if n is None else n for n in shape], generator=g)
        for key, shape in family.condition_shapes.items()
    }
    return StepInput(x, torch.tensor([0.31, 0.77]), target, condition)


def test_the_forward_is_that_of_diffusers(tiny_family, by_hand):
    model, family, step = tiny_family.build(), tiny_family.family(), given(tiny_family)
    family.keep_time(model)
    with torch.no_grad():
        ours = family.velocity(model(**family.arguments(step)), step.x_sigma.shape)
        theirs = by_hand(tiny_family.build(), step.x_sigma, step.sigma, step.condition)  # without what keeps time
        loss = step_loss(model, family, step)
    assert ours.shape == step.x_sigma.shape
    assert torch.equal(ours, theirs)
    assert torch.allclose(loss, (theirs - step.target).square().flatten(1).mean(1))
    assert theirs.std() > 0.01


def test_time_text_and_every_sample_matter(tiny_family):
    """A sample's answer depends on its own latent, sigma and text, and on no other sample's."""
    model, family, step = tiny_family.build(), tiny_family.family(), given(tiny_family)

    def answer(changed):
        with torch.no_grad():
            return family.velocity(model(**family.arguments(changed)), changed.x_sigma.shape)

    before = answer(step)
    sigma = step.sigma + torch.tensor([0.1, 0])
    texts = {
        key: value + torch.tensor([1.0, 0]).view(-1, *[1] * (value.ndim - 1)) for key, value in step.condition.items()
    }
    for changed in (
        StepInput(step.x_sigma, sigma, step.target, step.condition),
        StepInput(step.x_sigma, step.sigma, step.target, texts),
    ):
        after = answer(changed)
        assert not torch.allclose(after[0], before[0], atol=1e-5)
        assert torch.allclose(after[1], before[1], atol=1e-5)


@pytest.mark.parametrize("weights", ["autocast", "bf16"])
def test_half_precision_does_not_round_time(tiny_family, weights):
    """Neither autocast nor bfloat16 weights merge two levels that bfloat16 cannot tell apart."""
    family, step = tiny_family.family(), given(tiny_family)
    dtype = torch.bfloat16 if weights == "bf16" else torch.float32
    heard = []
    found, _ = tiny_family.loaded("bf16" if weights == "bf16" else "fp32")
    name = {"sd3": "time_text_embed.time_proj", "wan": "condition_embedder.timesteps_proj", "z_image": "t_embedder",
            "cosmos": "time_embed.time_proj"}.get(family.name, "time_text_embed.time_proj")  # fmt: skip
    found.transformer.get_submodule(name).register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    run = Execution(dtype="bf16" if weights == "autocast" else None)
    close = StepInput(step.x_sigma, torch.tensor([0.7, 0.7005]), step.target, step.condition).fed_as(dtype)
    assert torch.tensor([0.7, 0.7005]).bfloat16().unique().numel() == 1
    with torch.no_grad(), executed_as(NATIVE, run):
        loss = step_loss(found.transformer, found.family, close)
    assert loss.dtype == torch.float32
    assert loss.isfinite().all()
    assert heard[0].dtype == torch.float32
    assert heard[0].unique().numel() == 2


def test_half_precision_weights_carry_a_float32_adapter(tiny_family):
    (full, adapter), (half, half_adapter) = tiny_family.loaded(), tiny_family.loaded("bf16")
    losses = []
    for found, parameters in ((full, adapter), (half, half_adapter)):
        step = given(tiny_family).fed_as(found.dtype)
        with executed_as(NATIVE, Execution()):
            loss = step_loss(found.transformer, found.family, step)
            loss.sum().backward()
        losses.append(loss)
        assert all(p.dtype == p.grad.dtype == torch.float32 for p in parameters.values())
    assert {p.dtype for n, p in half.transformer.named_parameters() if n.endswith("to_q.base_layer.weight")} == {
        torch.bfloat16
    }
    assert torch.allclose(*losses, rtol=0.02)
    assert not torch.equal(*losses)
    gradients = [torch.cat([p.grad.flatten() for p in each.values()]) for each in (adapter, half_adapter)]
    assert 1e-5 < (gradients[1] - gradients[0]).norm() / gradients[0].norm() < 0.1


def test_blocks_are_named_and_ordered_as_the_model_runs_them(tiny_family):
    found, parameters = tiny_family.loaded()
    names, ran = blocks(found.family, found.transformer), []
    for name in names:
        found.transformer.get_submodule(name).register_forward_hook(lambda *_, name=name: ran.append(name))
    step_loss(found.transformer, found.family, given(tiny_family))
    assert names == ran
    owners = [block_of(found.family, name) for name in parameters]
    assert list(dict.fromkeys(owners)) == names  # each block has a part of the adapter, and nothing else has
    lists = {name for name, m in found.transformer.named_children() if isinstance(m, torch.nn.ModuleList)}
    assert lists == set(found.family.block_lists)


def test_a_grid_that_the_patch_does_not_divide_is_refused_by_name(tiny_family):
    family = tiny_family.family()

    def never(**arguments):
        raise AssertionError("the model was called")

    for sides in ((7, 12), (8, 11)):
        with pytest.raises(
            UsageError, match=rf"latent of {sides[0]} x {sides[1]}: {family.name} takes sides.*patch of 2"
        ):
            step_loss(never, family, given(tiny_family, sides))


def test_other_channels_frames_and_sizes_are_refused_by_name(tiny_family):
    family, step = tiny_family.family(), given(tiny_family)

    def refusal(shape):
        x = torch.zeros(2, *shape)
        with pytest.raises(UsageError) as error:
            step_loss(tiny_family.build(), family, StepInput(x, step.sigma, x, step.condition))
        return str(error.value)

    assert f"latents with 5 channels: this {family.name} takes 4" in refusal((5, *tiny_family.frames, 8, 12))
    if not family.clips:
        assert f"{family.name} takes [C, H, W], without frames" in refusal((4, 2, 8, 12))
    assert family.longest == LONGEST[family.name]
    if family.longest is not None:
        side = 2 * (family.longest + 1)
        assert f"has positions for {family.longest} along a side" in refusal((4, *tiny_family.frames, side, 8))
    with pytest.raises(UsageError, match="with 5 channels"):
        type(family)(tiny_family.build().config, channels=5)


def test_tokens_count_frames(tiny_family):
    frames = 2 if tiny_family.frames else 1
    assert image_tokens(tiny_family.family(), (4, *tiny_family.frames, 8, 12)) == 24 * frames


def test_a_model_without_text_takes_its_unconditional_token(tiny_family):
    model, family, step = tiny_family.build(), tiny_family.family(), given(tiny_family)
    answer = step_loss(model, family, StepInput(step.x_sigma, step.sigma, step.target, unconditional(family, 2)))
    assert answer.isfinite().all()
