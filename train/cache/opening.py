"""Opening a cache for a model: one of ``train cache``, or one that another tool wrote."""

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from analysis.errors import UsageError
from train.cache import index, kohya, musubi
from train.cache.cached import CachedLatents, Stored, StoredImage
from train.cache.model import vae_hash
from train.families import Family
from train.latents import Latents

MORE = "make the cache again with it, by train cache"


def opened(folder: Path, family: Family, model: Path) -> Latents | None:
    """The cache in ``folder`` for a model of ``family`` in the folder ``model``; None where there is no cache."""
    if (folder / index.NAME).is_file():
        return own(folder, family, model)
    if not folder.is_dir():
        return None
    if (folder / index.LATENTS).is_dir():
        raise UsageError(f"{folder}: a cache without its index; let train cache finish it first")
    return kohya.opened(folder, family, model) or musubi.opened(folder, family, model)


def own(folder: Path, family: Family, model: Path) -> CachedLatents:
    """A cache of ``train cache``. UsageError where it is one of another model."""
    found = index.read(folder)
    if found.family != family.name:
        raise UsageError(f"{folder} is a cache of {found.family}, the model is {family.name}: make one for this model")
    if vae_hash(model) not in (None, found.hashes["vae"]):
        raise UsageError(f"{folder} was made with another autoencoder than that of {model}: run train cache again")
    images = {name: _image(folder, image) for name, image in found.images.items()}
    return CachedLatents(family, found.tiers[0], images, MORE)


def _image(folder: Path, image: index.Image) -> StoredImage:
    latents, repromoted = (
        {tier: _stored(folder, file, index.LATENT) for tier, file in kind.items()}
        for kind in (image.latents, image.repromoted)
    )
    reencoded = None if image.reencoded is None else _stored(folder, image.reencoded, index.LATENT)
    text = {name: _stored(folder, image.text, name) for name in image.text.shapes}
    return StoredImage(latents, text, repromoted, reencoded)


def _stored(folder: Path, file: index.File, name: str) -> Stored:
    if name not in file.shapes:
        raise UsageError(f"{folder / index.NAME}: {file.path} has no {name}; run train cache again")
    return Stored(file.shapes[name], file.sha256, reader(folder / file.path, name, file))


def reader(path: Path, name: str, file: index.File) -> Callable[[], Tensor]:
    """What reads the tensor ``name``; UsageError where the file is not the one of the index."""

    def read() -> Tensor:
        try:
            if index.file_hash(path) != file.sha256:
                raise UsageError(f"{path} is not what the index says: run train cache again")
            with safe_open(path, framework="pt") as opened_file:
                return opened_file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{path} cannot be read ({error}): run train cache again") from None

    return read
