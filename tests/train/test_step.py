"""From a sample to the model's input, arm by arm, on pictures made here."""

import numpy as np
import pytest
import torch
from PIL import Image

from analysis.errors import UsageError
from train.arms import parse
from train.coupling import area_matrix, white_area_matrix
from train.families.flux import Flux
from train.latents import PixelLatents
from train.pictures import Picture
from train.plan import Sample
from train.step import Source, step_input

CONFIG = {"in_channels": 48, "joint_attention_dim": 16, "pooled_projection_dim": 16, "guidance_embeds": False}
SAMPLE = Sample("a", 1)


@pytest.fixture
def source():
    rng = np.random.default_rng(0)
    family = Flux(CONFIG, channels=3)
    pictures = {"a": Picture(rng.integers(0, 256, (128, 128, 3), dtype=np.uint8), "0")}
    return Source(PixelLatents(pictures, family, tier=64, scale=2.0), family, seed=5)


def step(source, arm, sigma=0.7, sample=SAMPLE):
    return step_input(parse(arm).plan(sigma), sample, sigma, source)


def noise_of(given):
    """Undo Eq. 1 and 2: noise = x_sigma + (1 - sigma) v."""
    return given.x_sigma + (1 - given.sigma.reshape(-1, 1, 1, 1)) * given.target


def clean_of(given):
    """x0 = x_sigma - sigma v."""
    return given.x_sigma - given.sigma.reshape(-1, 1, 1, 1) * given.target


def pixels(source, side):
    square = Image.fromarray(source.latents._pictures["a"].pixels).resize((side, side), Image.Resampling.LANCZOS)
    return (torch.from_numpy(np.asarray(square).copy()).movedim(-1, 0).double() / 127.5 - 1) * 2


def test_native_is_the_whole_picture_and_its_draw(source):
    given = step(source, "native")
    assert given.x_sigma.shape == (1, 3, 64, 64)
    assert torch.allclose(clean_of(given)[0].double(), pixels(source, 64), atol=1e-5)
    assert given.sigma.tolist() == pytest.approx([0.7])


def test_demotion_resizes_pixels_and_couples_the_noise(source):
    native, lower = step(source, "native"), step(source, "demote:7/8")
    assert lower.x_sigma.shape == (1, 3, 56, 56)
    assert torch.allclose(clean_of(lower)[0].double(), pixels(source, 56), atol=1e-5)
    p = white_area_matrix(64, 56)
    assert torch.allclose(noise_of(lower)[0].double(), p @ noise_of(native)[0].double() @ p.T, atol=1e-5)
    assert torch.equal(step(source, "demote:56").x_sigma, lower.x_sigma)


def test_latent_demotion_averages_the_latent(source):
    rows = area_matrix(64, 48)
    expected = rows @ clean_of(step(source, "native"))[0].double() @ rows.T
    assert torch.allclose(clean_of(step(source, "demote-latent:48"))[0].double(), expected, atol=1e-5)


def test_repromotion_keeps_grid_and_noise_and_loses_detail(source):
    native, back = step(source, "native"), step(source, "repromote:48")
    assert back.x_sigma.shape == native.x_sigma.shape
    assert torch.allclose(noise_of(back), noise_of(native), atol=1e-5)
    down = Image.fromarray(source.latents._pictures["a"].pixels).resize((48, 48), Image.Resampling.LANCZOS)
    up = np.asarray(down.resize((64, 64), Image.Resampling.LANCZOS)).copy()
    assert torch.allclose(clean_of(back)[0], (torch.from_numpy(up).movedim(-1, 0).float() / 127.5 - 1) * 2, atol=1e-5)


def test_a_model_of_pixels_loses_nothing_in_a_round_trip(source):
    native, back = step(source, "native"), step(source, "reencode")
    assert parse("reencode").plan(0.7).reencode
    assert torch.equal(back.x_sigma, native.x_sigma)


def test_redraw_changes_the_noise_alone(source):
    native, redraw = step(source, "native"), step(source, "redraw")
    assert torch.allclose(clean_of(redraw), clean_of(native), atol=1e-5)
    correlation = torch.corrcoef(torch.stack([noise_of(native).flatten(), noise_of(redraw).flatten()]))[0, 1]
    assert abs(float(correlation)) < 5 / (3 * 64 * 64) ** 0.5


def test_independent_noise_is_fresh_on_any_grid(source):
    coupled, independent = noise_of(step(source, "demote:56")), noise_of(step(source, "demote:56+noise:independent"))
    correlation = torch.corrcoef(torch.stack([coupled.flatten(), independent.flatten()]))[0, 1]
    assert abs(float(correlation)) < 5 / (3 * 56 * 56) ** 0.5
    assert not torch.allclose(noise_of(step(source, "noise:independent")), noise_of(step(source, "native")), atol=0.1)


def test_arms_share_their_draws_and_draws_differ(source):
    again = step(source, "native")
    assert torch.equal(again.x_sigma, step(source, "native").x_sigma)
    other = step(source, "native", sample=Sample("a", 2))
    assert not torch.allclose(noise_of(other), noise_of(again), atol=0.1)


def test_shifts(source):
    assert float(step(source, "shift:0.012").sigma) == pytest.approx(0.712)
    r = 7 / 8
    assert float(step(source, "demote:56+shift:snr").sigma) == pytest.approx(r * 0.7 / (1 + (r - 1) * 0.7))
    assert float(step(source, "demote:56+shift:snr", sigma=1.0).sigma) == 1.0


def test_the_shift_matches_the_signal_to_noise_ratio_of_the_mean(source):
    # The mean over the grid has noise variance sigma^2 / pixels: equal ratios at sigma and sigma'.
    sigma, r = 0.6, 0.75
    shifted = float(step(source, "demote:48+shift:snr", sigma).sigma)
    assert (1 - sigma) / (sigma / 64) == pytest.approx((1 - shifted) / (shifted / 48))
    assert shifted == pytest.approx(r * sigma / (1 + (r - 1) * sigma))


@pytest.mark.parametrize(
    ("arm", "sigma", "says"),
    [
        ("demote:54", 0.7, "not a multiple of the model's patch of 4; take 52 or 56"),
        ("demote:2", 0.7, "take 4"),
        ("demote:128", 0.7, "larger than the native tier of 64"),
        ("repromote:54", 0.7, "take 52 or 56"),
        ("demote-latent:54", 0.7, "take 52 or 56"),
        ("demote:5/7", 0.7, "not a whole number of pixels"),
        ("shift:snr", 0.7, "keeps the native grid"),
        ("shift:0.4", 0.7, "would become 1.1"),
        ("shift:-0.7", 0.7, "would become 0"),
    ],
)
def test_what_cannot_be_is_one_line(source, arm, sigma, says):
    with pytest.raises(UsageError, match=says):
        step(source, arm, sigma)


def test_positions_are_stretched_on_the_lower_grid_only(source):
    assert step(source, "rope:pi").rope.is_native
    assert step(source, "demote:56+rope:pi").rope.factors == (16 / 14, 16 / 14)
