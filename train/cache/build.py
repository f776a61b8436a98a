"""``train cache``, on one screen: photographs and captions to latents and conditioning of a model.

look at the photographs -> hash the encoders -> captions -> latents -> index -> remove what no image needs any more.
What is there already is kept, so a stopped job goes on, and ends with the same bytes.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from analysis import lock
from analysis.disk import naming_the_disk
from analysis.errors import UsageError
from train import determinism
from train.cache import autoencoder, index, model, texts, wanted
from train.cache.autoencoder import Autoencoder
from train.cache.buckets import tiers_of
from train.cache.index import File
from train.cache.photographs import Photograph, counted, look_at
from train.cache.place import check_out, check_pictures, tidy
from train.execution import device_named
from train.pictures import folders_with_pictures, paths_in, read_picture


@dataclass(frozen=True)
class Request:
    """What the command line says, as it says it."""

    model: str
    images: Path
    tiers: str
    skip_bad: bool = False
    plain: bool = False
    vae_dtype: str = "fp32"
    text_dtype: str = "bf16"
    device: str = "auto"
    threads: int | None = None


@dataclass(frozen=True)
class Contents:
    """A cache as it will be: every photograph with its latents and the place of its text."""

    model: model.CachedModel
    tiers: tuple[int, ...]
    photographs: tuple[Photograph, ...]
    left_out: Mapping[str, str]
    hashes: Mapping[str, str]
    settings: Mapping[str, Any]  # that decide the keys
    latents: Mapping[str, list[wanted.Latent]]  # by photograph
    texts: Mapping[str, tuple[str, Mapping[str, object]]]  # by caption: path and origin


def cache(request: Request, out: Path, *, dry_run: bool) -> None:
    """Make the cache ``out``, or with ``dry_run`` say what it would hold."""
    for name, value in (("vae", request.vae_dtype), ("text", request.text_dtype)):
        if value not in autoencoder.DTYPES:
            raise UsageError(f"--{name}-dtype {value}: takes {' or '.join(autoencoder.DTYPES)}")
    device = device_named(request.device)
    determinism.set_threads(request.threads or torch.get_num_threads())
    determinism.strict()
    described = model.described(request.model)
    tiers = tiers_of(request.tiers, described.unit)
    if damaged := check_out(out, described.family.name):
        say(f"{damaged}, and is made anew; what of its files is whole is kept")
    found = paths_in(request.images)
    if below := folders_with_pictures(request.images):
        say(f"{request.images}: subfolders are not read, such as {below[0]}, which holds pictures too")
    with tqdm(total=len(found), unit="picture", desc="looking", leave=False) as bar:
        photographs, left_out = look_at(
            request.images, tiers[0], described.unit, skip_bad=request.skip_bad, seen=bar.update
        )
    for name, reason in left_out.items():
        say(f"left out: {name} ({reason})")
    check_pictures(out, photographs)
    for tier in tiers:
        sizes = [wanted.grids(photograph, (tier,), described.unit)[tier] for photograph in photographs]
        say(f"tier {tier}: {counted(sizes)}")
    if dry_run:
        print(forecast(photographs, tiers, plain=request.plain))
        return
    contents = contents_of(request, described, tiers, photographs, left_out)
    with naming_the_disk(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    with lock.writing(out), naming_the_disk(out):
        check_pictures(out, photographs)  # of what another process has finished since
        for folder in (out, out / index.LATENTS, out / index.TEXTS):
            folder.mkdir(exist_ok=True)
        captions, new_texts = encode_texts(contents, out, request.text_dtype, device)
        files, new_latents = encode_latents(contents, out, request.vae_dtype, device)
        made = index_of(contents, captions, files)
        index.write(out, made)
        removed = tidy(out, made)
    bare = sum(not photograph.caption for photograph in photographs)
    new = f"{new_latents} of {len(files)} latents and {new_texts} of {len(captions)} captions encoded now"
    old = f"; {removed} files removed that no image needs any more" if removed else ""
    print(f"{out}: {len(photographs)} images in tiers {request.tiers}; {new}; {bare} images without a caption{old}")


def forecast(photographs: tuple[Photograph, ...], tiers: tuple[int, ...], *, plain: bool) -> str:
    """What there is to encode, in a line."""
    each = len(tiers) if plain else 2 * len(tiers)
    captions = len({photograph.caption for photograph in photographs})
    return f"{len(photographs)} images: {each * len(photographs)} latents and {captions} captions to encode at most"


def contents_of(
    request: Request,
    described: model.CachedModel,
    tiers: tuple[int, ...],
    photographs: tuple[Photograph, ...],
    left_out: Mapping[str, str],
) -> Contents:
    """Every file by its name, for which the encoders are hashed."""
    say("hashing the model's encoders")
    hashes = {"vae": str(model.vae_hash(described.folder)), "text": model.text_hash(described.folder)}
    for_latents: dict[str, Any] = {"vae": hashes["vae"], "dtype": request.vae_dtype}
    for_texts: dict[str, Any] = {"text": hashes["text"], "dtype": request.text_dtype, "family": described.family.name}
    settings: dict[str, Any] = {"vae_dtype": request.vae_dtype, "text_dtype": request.text_dtype}
    settings |= {"pixels": wanted.PIXELS, "posterior": wanted.POSTERIOR, "unit": described.unit}
    if described.family.name == "wan":
        # Its pipeline cleans captions with ftfy where that is installed.
        settings["ftfy"] = for_texts["ftfy"] = find_spec("ftfy") is not None
    latents = {
        photograph.name: wanted.latents(
            photograph, wanted.grids(photograph, tiers, described.unit), for_latents, plain=request.plain
        )
        for photograph in photographs
    }
    captions = {photograph.caption: wanted.text(photograph.caption, for_texts) for photograph in photographs}
    return Contents(described, tiers, photographs, left_out, hashes, settings, latents, captions)


def encode_texts(contents: Contents, out: Path, dtype: str, device: str) -> tuple[dict[str, File], int]:
    """Files of the captions, those encoded that are missing; and how many those were."""
    files = {caption: index.stored(out, path) for caption, (path, _) in contents.texts.items()}
    missing = [caption for caption, file in files.items() if file is None]
    if missing:
        encode = texts.load(contents.model.family, contents.model.folder, dtype, device)
        for caption in tqdm(missing, unit="caption", desc="captions", dynamic_ncols=True):
            path, origin = contents.texts[caption]
            files[caption] = index.store(out, path, encode(caption), origin, made_with(device))
    return {caption: file for caption, file in files.items() if file is not None}, len(missing)


def encode_latents(contents: Contents, out: Path, dtype: str, device: str) -> tuple[dict[str, File], int]:
    """Files of the latents by path, those encoded that are missing; and how many those were."""
    found = {each.path: index.stored(out, each.path) for all_of in contents.latents.values() for each in all_of}
    files = {path: file for path, file in found.items() if file is not None}
    missing = len(found) - len(files)
    if missing:
        coder = autoencoder.load(contents.model.folder, dtype, device)
        with tqdm(total=missing, unit="latent", desc="latents", dynamic_ncols=True) as bar:
            for photograph in contents.photographs:
                todo = [each for each in contents.latents[photograph.name] if each.path not in files]
                if not todo:
                    continue
                pixels = pixels_of(photograph)
                for each in todo:
                    latent = encoded(coder, each, pixels)
                    tensors = {index.LATENT: latent}
                    files[each.path] = index.store(out, each.path, tensors, each.origin, made_with(device))
                    bar.update()
    return files, missing


def made_with(device: str) -> dict[str, object]:
    """What encodes here and now, which last bits may depend on; a file that is kept tells of its own making."""
    libraries = {name: version(name) for name in ("torch", "diffusers", "transformers", "pillow")}
    return {"device": device, "threads": torch.get_num_threads(), **libraries}


def pixels_of(photograph: Photograph) -> np.ndarray:
    """The photograph's pixels. UsageError where it is another file than was looked at."""
    picture = read_picture(photograph.path)
    if picture.sha256 != photograph.sha256:
        raise UsageError(f"{photograph.path} was changed while the cache was made: run the command again")
    return picture.pixels


def encoded(coder: Autoencoder, each: wanted.Latent, photograph: np.ndarray) -> torch.Tensor:
    """A latent [C, h, w], float32. UsageError where it is not finite."""
    latent = coder.encode(each.pixels(photograph))
    if each.kind == "reencoded":
        latent = coder.encode(coder.decode(latent))
    if not latent.isfinite().all():
        raise UsageError(f"a latent of {each.origin['image']} is not finite: take --vae-dtype fp32")
    return latent


def index_of(contents: Contents, captions: Mapping[str, File], files: Mapping[str, File]) -> index.Index:
    """The index of the finished cache. Nothing in it depends on when or where it was made, or in how many goes."""
    images = {}
    for photograph in contents.photographs:
        kinds: dict[str, dict[int, File]] = {"latents": {}, "repromoted": {}, "reencoded": {}}
        for each in contents.latents[photograph.name]:
            kinds[each.kind][each.tier] = files[each.path]
        images[photograph.name] = index.Image(
            file=photograph.path.name,
            sha256=photograph.sha256,
            caption=photograph.caption,
            grids=wanted.grids(photograph, contents.tiers, contents.model.unit),
            text=captions[photograph.caption],
            latents=kinds["latents"],
            repromoted=kinds["repromoted"],
            reencoded=kinds["reencoded"].get(contents.tiers[0]),
        )
    family, settings = contents.model.family.name, dict(contents.settings)
    return index.Index(family, contents.tiers, dict(contents.hashes), settings, images, dict(contents.left_out))


def say(text: str) -> None:
    """A line for the person, on standard error."""
    print(text, file=sys.stderr, flush=True)
