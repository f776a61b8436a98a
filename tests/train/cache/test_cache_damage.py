"""What damages a cache, or would be lost by one: it is seen, mended by the next run, or refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from analysis.errors import UsageError
from analysis.safetensors_file import opened as opened_file
from train import tensors_file
from train.cache import index, opening
from train.cache.build import cache
from train.cache.model import described

pytestmark = pytest.mark.usefixtures("determinism_put_back")


def contents(folder):
    """Every file of a cache by name, hidden ones too."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def made(request, out, capsys):
    cache(request, out, dry_run=False)
    return capsys.readouterr()


def opened(request, out):
    model = described(request.model)
    return opening.opened(out, model.family, model.folder)


@pytest.fixture(scope="module")
def made_once():
    """The bytes of the cache that every test here begins with; the photographs are the same ones each time."""
    return {}


@pytest.fixture
def finished(request_of, tmp_path, capsys, made_once):
    """A request of the native tier alone, the cache it asks for, and that cache's bytes."""
    request, out = request_of(tiers="64", plain=True), tmp_path / "c"
    if not made_once:
        made(request, out, capsys)
        made_once |= contents(out)
    for name, data in made_once.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)
    return request, out, dict(made_once)


def flip(path, place):
    """Another bit in a byte of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def read_latents(found):
    for name in found.names:
        found.latent(name, 64)


def read_texts(found):
    for name in found.names:
        found.condition(name)


@pytest.mark.parametrize("place", [-1, 250], ids=["data", "metadata"])
@pytest.mark.parametrize("with_index", [True, False])
def test_a_flipped_bit_is_seen_and_the_next_run_encodes_anew_what_has_it(finished, with_index, place, capsys):
    request, out, whole = finished
    for folder in (index.LATENTS, index.TEXTS):
        flip(min((out / folder).iterdir()), place)
    if with_index:
        latents = opened(request, out)
        for read in (read_latents, read_texts):
            with pytest.raises(UsageError, match="is not what the index says: run train cache again"):
                read(latents)
    else:
        (out / index.NAME).unlink()
        with pytest.raises(UsageError, match="without its index"):
            opened(request, out)
    assert "1 of 4 latents and 1 of 3 captions encoded now" in made(request, out, capsys).out
    assert contents(out) == whole
    read_latents(opened(request, out))


def test_files_cut_short_of_another_name_or_without_their_hash_are_made_anew(finished, capsys):
    request, out, whole = finished
    cut, renamed, bare, _ = sorted((out / index.LATENTS).iterdir())
    cut.write_bytes(cut.read_bytes()[:50])
    renamed.write_bytes(bare.read_bytes())
    with opened_file(bare) as file:
        told = {name: text for name, text in file.metadata.items() if name != index.CONTENT}
    tensors_file.write(bare, {index.LATENT: opened(request, out).latent("a", 64)}, told)
    assert "3 of 4 latents and 0 of 3 captions encoded now" in made(request, out, capsys).out
    assert contents(out) == whole


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda text: "{", r"index\.json is damaged"),
        (lambda text: text.replace('"images"', '"image"'), r"index\.json is damaged"),
        (lambda text: text.replace('"version": 1', '"version": 7'), r"index\.json is of version 7, not 1"),
    ],
)
def test_an_index_that_cannot_be_read_is_made_anew_from_what_is_there(finished, damage, says, capsys):
    request, out, whole = finished
    (out / index.NAME).write_text(damage((out / index.NAME).read_text()))
    with pytest.raises(UsageError, match=f"{says}.*: run train cache again$"):
        opened(request, out)
    said = made(request, out, capsys)
    assert "0 of 4 latents and 0 of 3 captions encoded now" in said.out
    assert "is made anew; what of its files is whole is kept" in said.err
    assert contents(out) == whole


def test_a_cache_of_other_pictures_is_not_replaced(finished, tmp_path, capsys):
    request, out, whole = finished
    other = tmp_path / "other"
    other.mkdir()
    Image.fromarray(np.full((90, 90, 3), 7, np.uint8)).save(other / "a.png")
    for dry_run in (True, False):
        with pytest.raises(UsageError, match="is a cache of 4 other pictures, and of none of these: give another --"):
            cache(replace(request, images=other), out, dry_run=dry_run)
    assert contents(out) == whole
    (other / "b.png").write_bytes((request.images / "b.png").read_bytes())  # one that both have
    assert "1 of 2 latents" in made(replace(request, images=other), out, capsys).out


def test_only_its_own_files_are_removed_and_none_is_written_among_others(finished, capsys):
    request, out, _ = finished
    left = [f"{'0' * 32}.safetensors", f".{'0' * 32}.partial.safetensors"]
    hidden = out / index.LATENTS / ".DS_Store"
    for path in [*(out / index.TEXTS / name for name in left), hidden]:
        path.write_text("")
    assert "; 2 files removed" in made(request, out, capsys).out
    assert hidden.exists()
    for name in ("latents/mine.safetensors", f"texts/{'g' * 32}.safetensors", "latents/folder", "texts/notes.txt"):
        (out / name).mkdir() if name.endswith("folder") else (out / name).write_text("kept")
        with pytest.raises(UsageError, match=f"holds {name}, which is no part of a cache: give another --out"):
            cache(request, out, dry_run=False)
        assert (out / name).exists()
        (out / name).rmdir() if name.endswith("folder") else (out / name).unlink()
    (out / index.NAME).unlink()
    (out / index.NAME).mkdir()
    with pytest.raises(UsageError, match=r"holds index\.json, which is no part"):
        cache(request, out, dry_run=False)


def test_each_file_tells_what_encoded_it_and_the_index_only_what_is_in_every_key(finished, capsys):
    request, out, whole = finished
    (request.images / "b.txt").write_text("a new caption")
    made(replace(request, threads=2), out, capsys)
    threads = {}
    for path in out.glob("*/*.safetensors"):
        with opened_file(path) as file:
            with_what = json.loads(file.metadata[index.MADE_WITH])
        threads[str(path.relative_to(out))] = with_what["threads"]
        assert {"device": "cpu", "torch": torch.__version__}.items() <= with_what.items()
    assert {threads[name] for name in whole if name in threads} == {1}
    assert [n for name, n in threads.items() if name not in whole] == [2]
    settings = index.read(out).settings
    assert set(settings) == {"pixels", "posterior", "vae_dtype", "text_dtype", "unit"}
