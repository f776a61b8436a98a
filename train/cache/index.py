"""A cache's index: what is in it and of what it was made. Its files are named by the hash of all that decides them.

    index.json                 the index, written last
    latents/KEY.safetensors    one latent each
    texts/KEY.safetensors      the conditioning of one caption each

A changed photograph, caption, encoder or setting asks for another key, so what is there under a key is never stale.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from analysis.atomic import replacing
from analysis.errors import UsageError
from analysis.safetensors_file import opened
from train import tensors_file

NAME, LATENTS, TEXTS = "index.json", "latents", "texts"
VERSION = 1
LATENT = "latent"  # the tensor's name in a file of latents
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class File:
    """One file of a cache. path: from the cache's folder; shapes: of its tensors by name."""

    path: str
    sha256: str
    shapes: Shapes


@dataclass(frozen=True)
class Image:
    """One photograph. grids: height and width in pixels by tier; repromoted and reencoded may have been left out."""

    file: str
    sha256: str
    caption: str
    grids: dict[int, tuple[int, int]]
    text: File
    latents: dict[int, File]
    repromoted: dict[int, File] = field(default_factory=dict)
    reencoded: File | None = None

    def files(self) -> list[File]:
        """Every file it refers to."""
        return [self.text, *self.latents.values(), *self.repromoted.values(), *filter(None, [self.reencoded])]


@dataclass(frozen=True)
class Index:
    """The whole of it. hashes: of ``vae`` and ``text``; settings: how it was made; left_out: reasons by file name."""

    family: str
    tiers: tuple[int, ...]
    hashes: dict[str, str]
    settings: dict[str, Any]
    images: dict[str, Image]
    left_out: dict[str, str] = field(default_factory=dict)
    version: int = VERSION


def key(origin: Mapping[str, object]) -> str:
    """The name of what is made from ``origin``."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:32]


def path_of(folder: str, origin: Mapping[str, object]) -> str:
    """Where it lies in a cache."""
    return f"{folder}/{key(origin)}.safetensors"


def stored(cache: Path, path: str) -> File | None:
    """The file at ``path`` of the folder ``cache`` if it is there and whole."""
    try:
        with opened(cache / path) as file:
            shapes = {name: tensor.layout.shape for name, tensor in file.tensors.items()}
    except UsageError:  # missing or damaged: it is made anew
        return None
    return File(path, file_hash(cache / path), shapes)


def store(cache: Path, path: str, tensors: Mapping[str, Tensor], origin: Mapping[str, object]) -> File:
    """Write ``tensors``, atomically, with what they were made from as metadata."""
    tensors_file.write(cache / path, tensors, {"origin": json.dumps(origin, sort_keys=True)})
    return File(path, file_hash(cache / path), {name: tuple(tensor.shape) for name, tensor in tensors.items()})


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(cache: Path, index: Index) -> None:
    """Write the index, atomically."""
    with replacing(cache / NAME) as partial:
        partial.write_text(json.dumps(asdict(index), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read(cache: Path) -> Index:
    """The index of the folder ``cache``. UsageError where it is damaged or of another version."""
    file = cache / NAME
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise UsageError(f"{file} is of version {found['version']}, this is for {VERSION}: make the cache anew")
        images = {name: _image(image) for name, image in found.pop("images").items()}
        return Index(**{**found, "tiers": tuple(found["tiers"]), "images": images})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is damaged ({type(error).__name__}: {error}): run train cache again") from None


def _image(found: dict[str, Any]) -> Image:
    """An image as JSON has it, whose keys are all text."""
    by_tier = {name: {int(t): _file(f) for t, f in found[name].items()} for name in ("latents", "repromoted")}
    grids = {int(tier): (height, width) for tier, (height, width) in found["grids"].items()}
    reencoded = None if found["reencoded"] is None else _file(found["reencoded"])
    return Image(**{**found, **by_tier, "grids": grids, "text": _file(found["text"]), "reencoded": reencoded})


def _file(found: dict[str, Any]) -> File:
    return File(found["path"], found["sha256"], {name: tuple(shape) for name, shape in found["shapes"].items()})


def tidy(cache: Path, index: Index) -> int:
    """Remove the files of latents and texts that the index does not name; how many there were."""
    wanted = {cache / file.path for image in index.images.values() for file in image.files()}
    found = [path for folder in (LATENTS, TEXTS) for path in (cache / folder).iterdir() if path not in wanted]
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return len(found)
