"""The shipped mini model: what is in the package, that it has learned photographs, and how it is made."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from analysis.errors import UsageError
from train import model
from train.mini import pretrain
from train.mini.evaluate import linear_losses, losses
from train.mini.photographs import crops, photographs
from train.mini.pretrain import TIERS, Recipe, advance, begin, latent, rate_of, restore, save
from train.mini.wiener import BASES, fit, read

SIGMAS = [round(0.3 + 0.05 * i, 2) for i in range(13)]


@pytest.fixture(scope="module")
def mini():
    return model.load("mini")


def test_it_is_a_flux_of_about_two_million_parameters_on_256_tokens(mini):
    assert type(mini.transformer).__name__ == "FluxTransformer2DModel"
    assert 1.5e6 < sum(p.numel() for p in mini.transformer.parameters()) < 2.5e6
    latents = model.latents_of(mini, None)
    tokens = {
        tier: np.prod([side // mini.family.patch for side in latents.shape("00_astronaut", tier)]) for tier in TIERS
    }
    assert tokens == {64: 256, 56: 196, 48: 144}


def test_the_corpus_is_of_free_photographs_that_were_not_trained_on():
    names = {path.stem.split("_")[1] for path in (model.MINI / "corpus").glob("*.png")}
    corpus, training = photographs("corpus"), photographs("train")
    assert names == {photograph.name for photograph in corpus}
    assert not names & {photograph.name for photograph in training}
    assert len(list((model.MINI / "corpus").glob("*.png"))) >= 24
    assert {photograph.licence for photograph in corpus} <= {"CC0-1.0", "CC-BY-2.0", "public domain"}
    assert all(photograph.author and photograph.package and photograph.path for photograph in (*corpus, *training))


def test_on_held_out_crops_it_beats_the_best_linear_predictor_at_every_sigma(mini, tmp_path):
    """On new crops of the held-out photographs; the filter is that of the training crops."""
    pixels = torch.from_numpy(crops("corpus", 64, (64,), seed=7, unpacked=tmp_path)[64])
    linear = linear_losses({"cosine": read(model.MINI / "wiener.safetensors")}, pixels, SIGMAS, seed=7)
    for loss in losses(mini.transformer, pixels, linear, seed=7):
        assert loss.difference + 2 * loss.standard_error < 0, loss


def test_the_card_shows_the_losses_that_were_measured():
    card = (model.MINI / "MODEL_CARD.md").read_text(encoding="utf-8")
    with (model.MINI / "losses.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["sigma"]) for row in rows][: len(SIGMAS)] == SIGMAS
    for row in rows:
        assert f"| {float(row['sigma']):g} | {float(row['model']):.4f} |" in card
    with Image.open(model.MINI / "samples.png") as sheet:
        assert sheet.size[0] > 300


def test_the_adapter_is_warmed_and_keeps_its_optimiser_state(mini):
    parameters, lora, _ = model.adapter_of(mini, None, rank=4, seed=0)
    assert lora.rank == 4
    assert all(p.any() for p in parameters.values())
    state = load_file(model.MINI / "adapter" / "optimizer.safetensors")
    plain = {name.replace(".default.", ".") for name in parameters}
    assert set(state) == {f"{moment}.{name}" for name in plain for moment in ("exp_avg", "exp_avg_sq")}
    with safe_open(model.MINI / "adapter" / "optimizer.safetensors", framework="pt") as file:
        assert int(file.metadata()["step"]) > 0


@pytest.fixture
def small(monkeypatch):
    """A tiny transformer and random crops in place of the real ones."""
    monkeypatch.setitem(pretrain.TRANSFORMER, "num_single_layers", 1)
    rng = np.random.default_rng(0)
    return {tier: torch.from_numpy(rng.integers(0, 256, (8, tier, tier, 3), dtype=np.uint8)) for tier in TIERS}


def test_a_pretraining_that_stopped_goes_on_to_the_same_bits(small, tmp_path):
    recipe = Recipe(steps=4, batch=2, warmup=2)
    whole = begin(recipe)
    expected = [advance(whole, small, recipe) for _ in range(4)]
    stopped = begin(recipe)
    found = [advance(stopped, small, recipe) for _ in range(2)]
    save(tmp_path / "state.safetensors", stopped, recipe)
    resumed = restore(tmp_path / "state.safetensors", recipe)
    found += [advance(resumed, small, recipe) for _ in range(2)]
    assert found == expected
    assert all(torch.equal(resumed.averaged[name], weight) for name, weight in whole.averaged.items())
    with pytest.raises(UsageError, match="of another recipe"):
        restore(tmp_path / "state.safetensors", Recipe(steps=5, batch=2, warmup=2))


def test_the_rate_warms_up_and_falls_to_zero():
    recipe = Recipe(steps=1000, warmup=100, learning_rate=1.0)
    rates = [rate_of(step, recipe) for step in range(1000)]
    assert rates[0] == pytest.approx(0.01)
    assert max(rates) == pytest.approx(rates[99], rel=0.02)
    assert rates[-1] == pytest.approx(0.001)


@pytest.mark.parametrize("basis", sorted(BASES))
def test_the_filter_is_the_least_squares_predictor_among_all_of_its_form(basis):
    """Planted Gaussian pictures: no scaling of any frequency's answer does better on the crops it was fitted to."""
    g = torch.Generator().manual_seed(0)
    smooth = torch.nn.functional.avg_pool2d(torch.randn(400, 3, 10, 10, generator=g), 3, stride=1)
    noise, sigma = torch.randn(400, 3, 8, 8, generator=g), 0.6
    wiener = fit(smooth, basis)
    x_sigma, target = (1 - sigma) * smooth + sigma * noise, (noise - smooth).double()
    predicted = wiener.velocity(x_sigma, sigma)
    error = (predicted - target).square().mean()
    for change in (0.9, 1.1):
        assert (predicted * change - target).square().mean() > error
    by_mean_alone = (noise * 0 - smooth.mean(0)).double()
    assert (by_mean_alone - target).square().mean() > error


def test_the_filter_in_one_dimension_is_the_textbook_formula():
    """White pictures of mean m and variance s: v_hat = -m + gain (x - (1 - sigma) m), the gain written out below."""
    g = torch.Generator().manual_seed(1)
    x0 = 1.5 + 0.8 * torch.randn(4000, 3, 2, 2, generator=g)
    x = torch.zeros(1, 3, 2, 2)
    s, sigma = 0.64, 0.3
    gain = (sigma - (1 - sigma) * s) / ((1 - sigma) ** 2 * s + sigma**2)
    expected = -1.5 + gain * (0 - (1 - sigma) * 1.5)
    assert fit(x0, "cosine").velocity(x, sigma).mean() == pytest.approx(expected, abs=0.05)


def test_what_a_pixel_is(mini):
    black_and_white = torch.tensor([[[0, 0, 0], [255, 255, 255]]], dtype=torch.uint8)[None]
    assert latent(black_and_white).flatten().tolist() == [-2, 2] * 3
    about = json.loads((model.MINI / "sigma_probes.json").read_text())
    assert about == {"tier": 64, "channels": 3, "scale": 2.0}


def test_photographs_that_are_missing_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"Aqua.*Debian package mate-backgrounds"):
        photographs("train")[0].open(tmp_path)
