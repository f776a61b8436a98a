"""From a folder of photographs to figures, by the commands a person types, for three kinds of autoencoder."""

import json

import pytest
import xarray as xr

from analysis.entry import exit_code

pytestmark = pytest.mark.usefixtures("determinism_put_back")


@pytest.fixture
def typed(capsys):
    def command(name, *arguments, expected=0):
        from importlib import import_module

        code = exit_code(import_module(f"{name}.cli").app, list(map(str, arguments)), name=name)
        said = capsys.readouterr()
        assert code == expected, said.err
        return said.out

    return command


@pytest.mark.parametrize("family", ["flux", "qwenimage", "wan"])
def test_photographs_to_a_safety_curve_and_end_points(family, model_folder, photographs, tmp_path, typed, monkeypatch):
    from train.cache import autoencoder, texts

    model, cache, store = model_folder(family), tmp_path / "cache", tmp_path / "probe.zarr"
    typed("train", "cache", "--model", model, "--images", photographs, "--tiers", "64,48", "--out", cache)
    # From here on neither autoencoder nor text encoders are touched.
    for module in (autoencoder, texts):
        monkeypatch.setattr(module, "load", None)
    runs = [tmp_path / name for name in ("native", "low")]
    for run, arm in zip(runs, ("native", "demote:48@0.1"), strict=True):
        typed(
            "train", "--model", model, "--latents", cache, "--arm", arm, "--steps", 2, "--rank", 2, "--out", run,
            "--threads", 1, "--learning-rate", "1e-2", "--batch-size", 2, "--device", "cpu",
        )  # fmt: skip
    typed(
        "probes", "grad", "--model", model, "--latents", cache, "--adapter", runs[0] / "adapter.safetensors",
        "--images", 4, "--draws", 1, "--sigma-grid", "0.6", "--arm", "reencode", "--arm", "repromote:48",
        "--arm", "demote:3/4", "--jobs", 1, "--out", store,
    )  # fmt: skip
    data = xr.open_zarr(store, consolidated=False)
    assert data.arm.values.tolist() == ["native", "reencode", "repromote:48", "demote:3/4"]
    tokens = data.tokens.values
    assert (tokens[3] < tokens[0]).all()
    assert (tokens[:3] == tokens[0]).all()
    report = json.loads(typed("analysis", "safety", store, "--json"))
    bias = {cell["arm"]: cell["relative_bias_squared"] for cell in report["cells"] if cell["block"] == "total"}
    assert 0 not in bias.values()
    # Without twins there is no floor, which is a refusal; the figures stand all the same.
    ends = typed("analysis", "endpoints", *runs, "--out", tmp_path / "ends.zarr", "--json", expected=3)
    assert 0 < json.loads(ends)["pairs"][0]["cosine"] < 1


def test_a_family_of_another_package_is_cached_and_trained(
    plugged_in, model_folder, photographs, tmp_path, typed, monkeypatch
):
    from train.cache import autoencoder, texts

    model, cache, run = model_folder("aura_flow"), tmp_path / "cache", tmp_path / "run"
    made = ("train", "cache", "--model", model, "--images", photographs, "--tiers", "64", "--out", cache)
    typed(*made)
    for module in (autoencoder, texts):
        monkeypatch.setattr(module, "load", None)
    typed(
        "train", "--model", model, "--latents", cache, "--steps", 2, "--rank", 2, "--out", run, "--threads", 1,
        "--device", "cpu",
    )  # fmt: skip
    assert (run / "adapter.safetensors").exists()


def test_a_family_without_captions_is_told_how_to_add_them(
    plugged_in, model_folder, photographs, tmp_path, capsys, monkeypatch
):
    from train.cache import texts
    from train.cli import app

    monkeypatch.setattr(texts, "entry_points", lambda group: [])
    words = ["cache", "--model", model_folder("aura_flow"), "--images", photographs, "--tiers", "64"]
    assert exit_code(app, [*map(str, words), "--out", str(tmp_path / "cache")], name="train") == 2
    assert "train: family aura_flow: no text encoding is known for it; known: flux, " in capsys.readouterr().err


def test_what_is_no_cache_is_one_line(model_folder, photographs, capsys, tmp_path):
    from train import model

    loaded = model.load(str(model_folder("flux")))
    for folder, says in (
        (None, "make a cache of your pictures"),
        (photographs, "holds no cache; make one: train cache"),
        (tmp_path / "none", "is no folder"),
    ):
        with pytest.raises(Exception, match=says):
            model.latents_of(loaded, folder)
