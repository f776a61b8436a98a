"""Stretched positions of each family: native to the bit at zero strength, the native extent at full strength."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch

from analysis.errors import UsageError
from train.families import family_class, unconditional
from train.objective import StepInput
from train.rope import Rope, Stretch, resolve
from train.step import step_loss

KINDS = ["pi", "yarn", "yarn-sigma"]
PLACE = {"flux": "pos_embed", "qwenimage": "pos_embed", "wan": "rope", "cosmos": "rope", "z_image": "rope_embedder"}
GRID, LARGE = (4, 6), (8, 9)  # tokens of the step, and of the grid whose extent it is stretched to


@pytest.fixture
def case(tiny_family):
    """Model, family and a step on the small grid."""
    family, g = tiny_family.family(), torch.Generator().manual_seed(0)
    x, target = torch.randn(2, 1, 4, *tiny_family.frames, 2 * GRID[0], 2 * GRID[1], generator=g)
    return tiny_family.build(), family, StepInput(x, torch.tensor([0.5]), target, unconditional(family, 1))


def loss(case, rope):
    model, family, step = case
    with torch.no_grad(), family.stretched(model, rope):
        return step_loss(model, family, step)


def positions(module, family, grid, frames):
    """What a position module gives for image tokens of ``grid``: a list of tensors."""
    if family.name == "flux":
        return list(module(family.positions(2 * grid[0], 2 * grid[1])))
    if family.name == "qwenimage":
        return [
            torch.view_as_real(part) for part in module([[(1, *grid)]], max_txt_seq_len=3, device=torch.device("cpu"))
        ]
    if family.name == "z_image":
        ids = torch.cartesian_prod(torch.tensor([33]), torch.arange(grid[0]), torch.arange(grid[1]))
        return [torch.view_as_real(module(ids))]
    return list(module(torch.zeros(1, 4, frames, 2 * grid[0], 2 * grid[1])))


def stretched_module(case, rope):
    """The module that stands in the model inside ``stretched``."""
    model, family, _ = case
    with family.stretched(model, rope):
        return getattr(model, PLACE[family.name])


@pytest.mark.parametrize("kind", KINDS)
def test_zero_strength_is_native_bit_for_bit(case, kind, tiny_family):
    model, family, _ = case
    idle = replace(resolve(Stretch(kind), LARGE, GRID, 0.5), strength=0.0)
    assert idle.is_native
    assert torch.equal(loss(case, idle), loss(case, Rope()))
    if family.name == "sd3":
        return
    # The stretched positions themselves, which ``stretched`` would not come to.
    native, frames = getattr(model, PLACE[family.name]), 2 if tiny_family.frames else 1
    odd = (5, 7)  # whose middle is no token's edge
    ours = positions(made(family, native, idle), family, odd, frames)
    for stretched, own in zip(ours, positions(native, family, odd, frames), strict=True):
        assert torch.equal(stretched, own)


def made(family, native, rope):
    """The module that a family puts in the place of ``native``, made without asking whether it is needed."""
    if family.name == "flux":
        return import_module("train.families.flux").StretchedPositions(native.theta, tuple(native.axes_dim), rope)
    module = import_module(f"train.families.{family.name}")
    return (getattr(module, "StretchedPositions", None) or module.stretched_positions)(native, rope)


def test_interpolation_gives_a_small_grid_the_turns_of_the_native_one(case, tiny_family):
    """Every second row and third column of a grid so much larger stands where the small grid's do, stretched."""
    model, family, _ = case
    if family.name == "sd3":
        pytest.skip("it has no rotary positions")
    small_grid, large_grid = (4, 4), (8, 12)
    rope = resolve(Stretch("pi"), large_grid, small_grid, 0.9)
    assert rope.factors == (2.0, 3.0)
    frames = 2 if tiny_family.frames else 1
    ours = positions(stretched_module(case, rope), family, small_grid, frames)
    large = positions(getattr(model, PLACE[family.name]), family, large_grid, frames)
    places = torch.arange(frames * 8 * 12).view(frames, 8, 12)[:, ::2, ::3].flatten()
    if family.name == "qwenimage":  # image tokens; text is the model's own
        own = positions(model.pos_embed, family, small_grid, frames)
        assert torch.equal(ours.pop(), own.pop())
        large.pop()
    for small, big in zip(ours, large, strict=True):
        flat = (
            big.reshape(-1, *big.shape[-2:])
            if family.name in ("qwenimage", "z_image")
            else big.reshape(-1, big.shape[-1])
        )
        assert torch.allclose(small.reshape(-1, *flat.shape[1:]), flat[places], atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stretch_changes_the_answer_inside_its_context_only(case, kind):
    model, family, _ = case
    rope = resolve(Stretch(kind), LARGE, GRID, 0.9)
    native = loss(case, Rope())
    if family.name == "sd3":
        with pytest.raises(UsageError, match="arm term rope: sd3 has no rotary positions"):
            loss(case, rope)
        return
    own = getattr(model, PLACE[family.name])
    assert not torch.allclose(loss(case, rope), native, rtol=1e-6)
    with pytest.raises(ZeroDivisionError), family.stretched(model, rope):
        raise ZeroDivisionError
    assert getattr(model, PLACE[family.name]) is own
    assert torch.equal(loss(case, Rope()), native)


def test_rows_and_columns_have_factors_of_their_own(case):
    if case[1].name == "sd3":
        pytest.skip("it has no rotary positions")
    rows, columns, both = (loss(case, Rope(factors, GRID)) for factors in ((1.5, 1.0), (1.0, 1.5), (1.5, 1.5)))
    assert len({float(x) for x in (rows, columns, both, loss(case, Rope()))}) == 4


@pytest.mark.parametrize("window", ["", "@0.9999"])
def test_sd3_refuses_before_the_first_step(window, one_family):
    """A run and a probe find it when they are prepared, a run also where it draws no step that the arm treats."""
    from train.job import prepare
    from train.settings import Settings

    tiny = one_family("sd3")
    settings = Settings(model=str(tiny.folder), arm=f"demote:48+rope:pi{window}", steps=2, rank=2, threads=1)
    with pytest.raises(UsageError, match="sd3 has no rotary positions"):
        prepare(settings, tiny.latents())
    assert family_class("SD3Transformer2DModel").name == "sd3"
