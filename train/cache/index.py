"""A cache's index: what is in it and of what it was made. Its files are named by the hash of all that decides them.

    index.json                 the index, written last
    latents/KEY.safetensors    one latent each
    texts/KEY.safetensors      the conditioning of one caption each

A changed photograph, caption, encoder or setting asks for another key, so what is there under a key is never stale.
Metadata of a file: ``origin``, which its key is the hash of; ``made_with``, on what it was encoded, which may change
last bits and is in no key; ``sha256`` over those two and its tensors, which tells damage without an index.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from analysis.atomic import replacing
from analysis.bytewise import RawTensor, digests
from analysis.errors import UsageError
from analysis.safetensors_file import opened
from train import tensors_file
from train.raw_tensors import raw

NAME, LATENTS, TEXTS = "index.json", "latents", "texts"
VERSION = 1
LATENT = "latent"  # the tensor's name in a file of latents
ORIGIN, MADE_WITH, CONTENT = "origin", "made_with", "sha256"  # in the metadata of every file
Shapes = dict[str, tuple[int, ...]]


class Unreadable(UsageError):
    """An index that is damaged or of another version. reason: without what to do about it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}: run train cache again")
        self.reason = reason


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
    """The whole of it. hashes: of ``vae`` and ``text``; settings: those in the keys; left_out: reasons by file name."""

    family: str
    tiers: tuple[int, ...]
    hashes: dict[str, str]
    settings: dict[str, Any]
    images: dict[str, Image]
    left_out: dict[str, str] = field(default_factory=dict)
    version: int = VERSION


def key(origin: str) -> str:
    """The name of what is made from ``origin``, in JSON."""
    return hashlib.sha256(origin.encode()).hexdigest()[:32]


def path_of(folder: str, origin: Mapping[str, object]) -> str:
    """Where it lies in a cache."""
    return f"{folder}/{key(_json(origin))}.safetensors"


def stored(cache: Path, path: str) -> File | None:
    """The file at ``path`` of the folder ``cache`` if it is there and in every byte what was written."""
    try:
        with opened(cache / path) as file:
            told = dict(file.metadata)
            whole = told.pop(CONTENT, None) == content_hash(file.tensors, told)
            shapes = {name: tensor.layout.shape for name, tensor in file.tensors.items()}
    except UsageError:  # missing or damaged: it is made anew
        return None
    if not whole or key(told.get(ORIGIN, "")) != Path(path).stem:
        return None
    return File(path, file_hash(cache / path), shapes)


def store(
    cache: Path,
    path: str,
    tensors: Mapping[str, Tensor],
    origin: Mapping[str, object],
    made_with: Mapping[str, object],
) -> File:
    """Write ``tensors``, atomically, with what they were made from and on as metadata."""
    told = {ORIGIN: _json(origin), MADE_WITH: _json(made_with)}
    tensors_file.write(cache / path, tensors, told | {CONTENT: content_hash(raw(tensors), told)})
    return File(path, file_hash(cache / path), {name: tuple(tensor.shape) for name, tensor in tensors.items()})


def content_hash(tensors: Mapping[str, RawTensor], told: Mapping[str, str]) -> str:
    """SHA-256 over names, layouts and bytes of tensors, and what is told of them."""
    total = hashlib.sha256(_json(told).encode())
    for name, digest in sorted(digests(tensors).items()):
        total.update(json.dumps(name).encode() + digest)
    return total.hexdigest()


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(cache: Path, index: Index) -> None:
    """Write the index, atomically."""
    with replacing(cache / NAME) as partial:
        partial.write_text(json.dumps(asdict(index), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read(cache: Path) -> Index:
    """The index of the folder ``cache``. Unreadable where it is damaged or of another version."""
    file = cache / NAME
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise Unreadable(f"{file} is of version {found['version']}, not {VERSION}")
        images = {name: _image(image) for name, image in found.pop("images").items()}
        return Index(**{**found, "tiers": tuple(found["tiers"]), "images": images})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"{file} is damaged ({type(error).__name__}: {error})") from None


def _image(found: dict[str, Any]) -> Image:
    """An image as JSON has it, whose keys are all text."""
    by_tier = {name: {int(t): _file(f) for t, f in found[name].items()} for name in ("latents", "repromoted")}
    grids = {int(tier): (height, width) for tier, (height, width) in found["grids"].items()}
    reencoded = None if found["reencoded"] is None else _file(found["reencoded"])
    return Image(**{**found, **by_tier, "grids": grids, "text": _file(found["text"]), "reencoded": reencoded})


def _file(found: dict[str, Any]) -> File:
    return File(found["path"], found["sha256"], {name: tuple(shape) for name, shape in found["shapes"].items()})
