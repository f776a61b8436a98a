"""The model that a cache is made for: its family, its files and their hashes, without its transformer's weights."""

import hashlib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import diffusers

from train import model_files
from train.cache import autoencoder, texts
from train.cache.index import file_hash
from train.families import Family, family_class
from train.model_files import ModelFiles

TEXT_PARTS = tuple(dict.fromkeys((*texts.PARTS, *texts.ANIMA_PARTS)))


@dataclass(frozen=True)
class CachedModel:
    """unit: sides of pictures, in pixels, are multiples of it."""

    files: ModelFiles
    family: Family
    unit: int

    @property
    def folder(self) -> Path:
        return self.files.folder


def described(model: str) -> CachedModel:
    """The model of that name. UsageError where a part is missing that makes latents."""
    files = model_files.find(model, parts=("transformer", "vae", "scheduler", *TEXT_PARTS))
    family = family_class(files.config["_class_name"])
    found = family(with_defaults(files.config))
    return CachedModel(files, found, autoencoder.unit_of(files.folder) * found.patch)


def with_defaults(config: dict[str, object]) -> dict[str, object]:
    """A transformer's configuration with what its file leaves to the class."""
    kind = getattr(diffusers, str(config["_class_name"]), None)
    declared = {} if kind is None else inspect.signature(kind.__init__).parameters
    defaults = {name: p.default for name, p in declared.items() if p.default is not p.empty}
    return {**defaults, **config}


def vae_hash(folder: Path) -> str | None:
    """SHA-256 over the autoencoder of the model folder; None where there is none."""
    parts = sorted(p for p in (folder / autoencoder.FOLDER).glob("*") if p.suffix in (".json", ".safetensors"))
    return hash_of(folder, parts) if parts else None


def text_hash(folder: Path) -> str:
    """SHA-256 over text encoders and tokenisers."""
    parts = (path for part in TEXT_PARTS for path in (folder / part).rglob("*"))
    return hash_of(folder, sorted(path for path in parts if path.is_file()))


def hash_of(folder: Path, paths: Iterable[Path]) -> str:
    """SHA-256 over names within ``folder`` and contents."""
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.relative_to(folder).as_posix()} {file_hash(path)}\n".encode())
    return total.hexdigest()
