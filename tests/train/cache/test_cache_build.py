"""What ``train cache`` writes, and that every change of what it is made from is seen."""

import gc
import json
import shutil
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from analysis import lock
from analysis.errors import UsageError
from train.cache import autoencoder, index, opening, texts
from train.cache.build import cache
from train.cache.model import described
from train.pictures import read_picture, resized

pytestmark = pytest.mark.usefixtures("determinism_put_back")


def contents(folder):
    """Every file of a cache by name, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def made(request, out, capsys, *, dry_run=False):
    cache(request, out, dry_run=dry_run)
    return capsys.readouterr()


def opened(request, out):
    model = described(request.model)
    return opening.opened(out, model.family, model.folder)


@pytest.mark.parametrize("family", ["flux", "wan"])
def test_each_latent_is_the_photograph_cut_resized_and_encoded(family, request_of, tmp_path, capsys):
    request = request_of(family)
    said = made(request, tmp_path / "c", capsys).out
    assert "4 images in tiers 48,64; 16 of 16 latents and 3 of 3 captions encoded now; 2 images without" in said
    latents = opened(request, tmp_path / "c")
    assert (latents.tier, latents.names) == (64, ("a", "b", "c", "d"))
    coder = autoencoder.load(Path(request.model), "fp32", "cpu")
    for name in latents.names:
        pixels = read_picture(request.images / f"{name}.png").pixels
        sides = {tier: [coder.factor * side for side in latents.shape(name, tier)] for tier in (64, 48)}
        low = resized(pixels, sides[48])
        up = np.asarray(Image.fromarray(low).resize(sides[64][::-1], Image.Resampling.LANCZOS))
        native = coder.encode(resized(pixels, sides[64]))
        assert torch.equal(latents.latent(name, 64), native)
        assert torch.equal(latents.latent(name, 48), coder.encode(low))
        assert torch.equal(latents.repromoted(name, 48), coder.encode(up))
        assert torch.equal(latents.reencoded(name), coder.encode(coder.decode(native)))
        assert not torch.equal(latents.reencoded(name), native)
    assert latents.condition("b")["encoder_hidden_states"].shape == (512, 32)
    assert not torch.equal(*(latents.condition(n)["encoder_hidden_states"] for n in "ab"))


def test_text_encoders_are_gone_before_the_autoencoder_is_loaded(request_of, tmp_path, monkeypatch):
    """Nothing needs to be offloaded: no two of the model's parts are held at one time."""
    encoders, load_texts, load_autoencoder = [], texts.loaded, autoencoder.load

    def loaded(*given):
        pipeline = load_texts(*given)
        encoders.extend(weakref.ref(m) for m in vars(pipeline).values() if isinstance(m, torch.nn.Module))
        return pipeline

    def alone(*given):
        gc.collect()
        assert encoders
        assert [alive() for alive in encoders if alive() is not None] == []
        return load_autoencoder(*given)

    monkeypatch.setattr(texts, "loaded", loaded)
    monkeypatch.setattr(autoencoder, "load", alone)
    cache(request_of(), tmp_path / "c", dry_run=False)


def test_a_second_time_does_nothing_and_two_places_hold_the_same_bytes(request_of, tmp_path, capsys):
    made(request_of(), tmp_path / "c", capsys)
    before = contents(tmp_path / "c")
    assert "0 of 16 latents and 0 of 3 captions encoded now" in made(request_of(), tmp_path / "c", capsys).out
    assert contents(tmp_path / "c") == before
    made(request_of(), tmp_path / "deep" / "er", capsys)
    assert contents(tmp_path / "deep" / "er") == before


def test_a_changed_photograph_caption_or_setting_is_seen(request_of, tmp_path, capsys):
    request, out = request_of(), tmp_path / "c"
    made(request, out, capsys)
    first = opened(request, out)
    Image.fromarray(np.full((90, 90, 3), 7, np.uint8)).save(request.images / "a.png")
    (request.images / "b.txt").write_text("a new caption")
    said = made(request, out, capsys).out
    assert "4 of 16 latents and 1 of 4 captions" in said
    assert "4 files removed" in said
    second = opened(request, out)
    assert not torch.equal(first._images["b"].text["encoder_hidden_states"].read(), second.condition("b")[
        "encoder_hidden_states"])  # fmt: skip
    assert torch.equal(first.latent("c", 64), second.latent("c", 64))
    assert first.digest() != second.digest()
    assert "16 of 16 latents and 0 of" in made(replace(request, vae_dtype="bf16"), out, capsys).out
    assert "0 of 8 latents" in made(replace(request, vae_dtype="bf16", plain=True), out, capsys).out
    with pytest.raises(UsageError, match="no latent after a round trip; make the cache again"):
        opened(request, out).reencoded("a")
    assert "0 of 4 latents" in made(replace(request, vae_dtype="bf16", plain=True, tiers="64"), out, capsys).out
    with pytest.raises(UsageError, match="image a: no latent of tier 48; there: 64"):
        opened(request, out).shape("a", 48)


def test_a_changed_autoencoder_is_seen_and_refused_until_then(request_of, tmp_path, capsys):
    request = request_of()
    model = tmp_path / "model"
    shutil.copytree(request.model, model)
    request, out = replace(request, model=str(model)), tmp_path / "c"
    made(request, out, capsys)
    config = json.loads((model / "vae" / "config.json").read_text())
    (model / "vae" / "config.json").write_text(json.dumps(config | {"shift_factor": 0.2}))
    with pytest.raises(UsageError, match=r"another autoencoder than that of .*: run train cache again"):
        opened(request, out)
    assert "16 of 16 latents and 0 of 3" in made(request, out, capsys).out
    assert opened(request, out).tier == 64
    shutil.rmtree(model / "vae")  # the transformer alone: nothing to compare with
    family = described(request_of().model).family
    assert opening.opened(out, family, model).tier == 64


def test_a_cache_of_another_family_is_refused(request_of, tmp_path, capsys):
    made(request_of("flux"), tmp_path / "c", capsys)
    other = request_of("qwenimage")
    with pytest.raises(UsageError, match="is a cache of flux, the model is qwenimage"):
        opened(other, tmp_path / "c")
    with pytest.raises(UsageError, match="is a cache of flux, the model is qwenimage"):
        cache(other, tmp_path / "c", dry_run=False)


def test_a_damaged_photograph_stops_the_job_or_is_left_out(request_of, tmp_path, capsys):
    request, out = request_of(), tmp_path / "c"
    (request.images / "b.png").write_bytes(b"\x89PNG nonsense")
    with pytest.raises(UsageError, match=r"b\.png: not a readable picture.*--skip-bad"):
        cache(request, out, dry_run=False)
    assert not out.exists()
    said = made(replace(request, skip_bad=True), out, capsys)
    assert "3 images" in said.out
    assert "left out: b.png" in said.err
    assert list(index.read(out).left_out) == ["b.png"]
    assert opened(request, out).names == ("a", "c", "d")


def test_where_nothing_may_be_written(request_of, tmp_path):
    request = request_of()
    with pytest.raises(UsageError, match="which is no part of a cache"):
        cache(request, request.images, dry_run=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        cache(request, tmp_path / "file", dry_run=False)
    with lock.writing(tmp_path / "c"):
        lock._held.clear()  # as another process would find it
        with pytest.raises(UsageError, match="is being written by another process"):
            cache(request, tmp_path / "c", dry_run=False)
    for option in ("vae_dtype", "text_dtype"):
        with pytest.raises(UsageError, match=f"--{option.replace('_', '-')} fp8: takes fp32 or bf16"):
            cache(replace(request, **{option: "fp8"}), tmp_path / "c", dry_run=False)


def test_a_dry_run_says_what_and_writes_nothing(request_of, tmp_path, capsys):
    request = request_of()
    shutil.copytree(request.images, request.images / "more")
    said = made(request, tmp_path / "c", capsys, dry_run=True)
    assert said.err.count("photographs: subfolders are not read, such as more, which holds pictures too\n") == 1
    assert said.out == "4 images: 16 latents and 3 captions to encode at most\n"
    assert "tier 64: 1 of " in said.err
    assert not (tmp_path / "c").exists()


def test_the_index_says_how_it_was_made(request_of, tmp_path, capsys):
    made(request_of(), tmp_path / "c", capsys)
    found = index.read(tmp_path / "c")
    assert found.settings["posterior"] == "mode"
    assert "white" in found.settings["pixels"]
    assert "Lanczos" in found.settings["pixels"]
    assert set(found.settings) == {"pixels", "posterior", "vae_dtype", "text_dtype", "unit"}
    assert str(tmp_path) not in (tmp_path / "c" / index.NAME).read_text()
    assert found.images["d"].grids == {64: (76, 52), 48: (56, 40)}  # of 120 x 80 pixels, in steps of 4
