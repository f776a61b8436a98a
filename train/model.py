"""Loading a transformer with its family, its latents and its adapter, by what the user named.

``mini`` is the shipped model. Anything else is a folder in diffusers' layout or a name on the hub
(``train.model_files``); the family is found from the transformer's class.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from analysis.errors import UsageError
from train import adapter_file, model_files
from train.adapter import Lora, attach, attach_file
from train.families import Family, family_class
from train.latents import Latents, pixel_latents
from train.model_files import ModelFiles

MINI = model_files.MINI
PIXELS = "sigma_probes.json"  # beside a pixel model's transformer: {"tier": 64, "channels": 3, "scale": 2.0}
WEIGHTS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Model:
    """A frozen transformer with its family and where it was read from.

    pixels: for a model that works on pixels, how they are scaled; empty for latents of an autoencoder. dtype: of
    most weights; some families keep a few in float32.
    """

    transformer: nn.Module
    family: Family
    files: ModelFiles
    pixels: dict[str, Any]
    dtype: torch.dtype = torch.float32

    @property
    def folder(self) -> Path:
        return self.files.folder

    def digest(self) -> str:
        """SHA-256 over the transformer's configuration and weights."""
        return hash_of(self.files.all)


def load(model: str, weights: str = "fp32") -> Model:
    """The model of that name, its weights as ``fp32`` or ``bf16``, whatever they are stored in."""
    if weights not in WEIGHTS:
        raise UsageError(f"--weights {weights}: takes {' or '.join(WEIGHTS)}")
    files = model_files.find(model)
    family = family_class(files.config["_class_name"])
    pixels = model_files.configuration(files.folder / PIXELS)
    dtype = WEIGHTS[weights]
    transformer = read_transformer(model, files, family, dtype)
    found = family(transformer.config, pixels.get("channels"))  # pyright: ignore[reportArgumentType]
    found.keep_time(transformer)
    return Model(transformer.eval().requires_grad_(False), found, files, pixels, dtype)


def read_transformer(model: str, files: ModelFiles, family: type[Family], dtype: torch.dtype) -> nn.Module:
    """The transformer on the CPU. UsageError where its files are damaged or do not hold all of it."""
    import diffusers
    from diffusers.utils import logging
    from safetensors import SafetensorError

    kind = getattr(diffusers, family.transformer_class, None)
    if kind is None:
        raise UsageError(
            f"model {model}: diffusers {diffusers.__version__} has no {family.transformer_class}; install a newer one"
        )
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # what it would warn of is an error here
    try:
        transformer, found = kind.from_pretrained(
            files.transformer, torch_dtype=dtype, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        raise UsageError(
            f"model {model}: {files.transformer} does not load ({model_files.one_line(error)}); fetch the model again"
        ) from None
    finally:
        logging.set_verbosity(verbosity)
    # diffusers would go on, with random numbers for those that are missing.
    for keys, what in ((found["missing_keys"], "lack"), (found["unexpected_keys"], "have, unlike its config.json,")):
        if keys:
            raise UsageError(
                f"model {model}: its weights {what} {len(keys)} tensors, such as {min(keys)}; fetch the model again"
            )
    return transformer


def latents_of(model: Model, folder: Path | None) -> Latents:
    """The cache in ``folder``; of a model of pixels its pictures, or the model's own corpus, as latents."""
    if not model.pixels:
        return cached_latents(model, folder)
    pictures = folder if folder is not None else model.folder / "corpus"
    return pixel_latents(pictures, model.family, tier=model.pixels["tier"], scale=model.pixels["scale"])


def cached_latents(model: Model, folder: Path | None) -> Latents:
    """The cache in ``folder``, of this project or another tool."""
    from train.cache import opening

    what = f"model {model.folder}: it works on latents of an autoencoder"
    if folder is None:
        raise UsageError(f"{what}; make a cache of your pictures with train cache, and give its folder as --latents")
    if (latents := opening.opened(folder, model.family, model.folder)) is None:
        kind = "holds no cache" if folder.is_dir() else "is no folder"
        raise UsageError(
            f"{what}, and {folder} {kind}; make one: train cache --model {model.folder} --images {folder} --out cache"
        )
    return latents


def adapter_of(model: Model, path: Path | None, *, rank: int, seed: int) -> tuple[dict[str, nn.Parameter], Lora, str]:
    """The adapter of ``path``, else the model's own, else a fresh one: parameters, settings, SHA-256 or ``fresh``."""
    own = model.folder / "adapter" / "adapter.safetensors"
    file = path or (own if own.is_file() else None)
    if file is None:
        lora = Lora(rank, rank, model.family.lora_targets)
        return attach(model.transformer, lora, seed), lora, "fresh"
    return *attach_file(model.transformer, file), hash_of(adapter_file.files_of(file))


def hash_of(files: list[Path]) -> str:
    """SHA-256 over names and contents."""
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()
