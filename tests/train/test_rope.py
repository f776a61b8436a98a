import pytest
import torch
from diffusers.models.transformers.transformer_flux import FluxPosEmbed

from train.families.flux import Flux, StretchedPositions
from train.rope import NATIVE, Rope, Stretch, band_factors, resolve

CONFIG = {"in_channels": 48, "joint_attention_dim": 16, "pooled_projection_dim": 16, "guidance_embeds": False}
DIMS = (8, 12, 12)


@pytest.fixture
def ids():
    return Flux(CONFIG, channels=3).positions(56, 48)


def test_no_stretch_gives_the_models_own_positions(ids):
    cosine, sine = FluxPosEmbed(theta=10000, axes_dim=list(DIMS))(ids)
    ours = StretchedPositions(10000.0, DIMS, NATIVE)(ids)
    assert torch.equal(ours[0], cosine)
    assert torch.equal(ours[1], sine)


@pytest.mark.parametrize("kind", ["pi", "yarn", "yarn-sigma"])
def test_zero_strength_is_native_bit_for_bit(ids, kind):
    stretched = resolve(Stretch(kind, 1.3), (16, 16), (14, 12), 0.5)
    idle = Rope(stretched.factors, stretched.tokens, stretched.banded, strength=0.0)
    native = StretchedPositions(10000.0, DIMS, NATIVE)(ids)
    for ours, own in zip(StretchedPositions(10000.0, DIMS, idle)(ids), native, strict=True):
        assert torch.equal(ours, own)
    assert idle.is_native
    assert not stretched.is_native


def test_interpolation_gives_a_small_grid_the_extent_of_the_native_one(ids):
    rope = resolve(Stretch("pi"), (16, 16), (14, 12), 0.9)
    assert rope.factors == (16 / 14, 16 / 12)
    scaled = ids * torch.tensor([1.0, 16 / 14, 16 / 12])
    cosine, sine = FluxPosEmbed(theta=10000, axes_dim=list(DIMS))(scaled)
    ours = StretchedPositions(10000.0, DIMS, rope)(ids)
    assert torch.allclose(ours[0], cosine, atol=2e-6)
    assert torch.allclose(ours[1], sine, atol=2e-6)


def test_bands_leave_the_fastest_alone_and_stretch_the_slowest_fully():
    frequencies = torch.tensor([1.0, 0.6, 0.1, 0.001], dtype=torch.float64)
    rope = Rope((8 / 7, 1.0), (16, 16), banded=True)
    factors = band_factors(rope, 0, frequencies)
    turns = 16 * frequencies / (2 * torch.pi)
    assert factors[0] == 1
    assert factors[-1] == pytest.approx(8 / 7)
    assert factors[1] == pytest.approx(1 + (1 / 7) * (1 - (turns[1] - 1) / (turns[0] - 1)))
    assert torch.equal(band_factors(rope, 1, frequencies), torch.ones(4, dtype=torch.float64))


def test_the_gated_kind_grows_with_sigma():
    strengths = [resolve(Stretch("yarn-sigma"), (16, 16), (14, 14), sigma).strength for sigma in (0.2, 0.9)]
    assert strengths == [0.2, 0.9]
    assert resolve(Stretch("yarn"), (16, 16), (14, 14), 0.2).strength == 1


def test_on_the_native_grid_nothing_is_stretched():
    assert resolve(Stretch("pi"), (16, 16), (16, 16), 0.5).is_native
    assert resolve(Stretch(), (16, 16), (14, 14), 0.5) is NATIVE
