"""Loading a transformer with its family, its latents and its adapter, by what the user named.

``mini`` is the shipped model. Anything else is a folder in diffusers' layout.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from analysis.errors import UsageError
from train.adapter import Lora, attach, attach_file
from train.families import Family, family_class
from train.latents import Latents, pixel_latents

MINI = Path(__file__).with_name("mini")
PIXELS = "sigma_probes.json"  # beside a pixel model's transformer: {"tier": 64, "channels": 3, "scale": 2.0}


@dataclass(frozen=True)
class Model:
    """A frozen transformer with its family and where it was read from."""

    transformer: nn.Module
    family: Family
    folder: Path
    pixels: dict[str, Any]

    def digest(self) -> str:
        """SHA-256 over the transformer's configuration and weights."""
        return hash_of(sorted((self.folder / "transformer").iterdir()))


def load(model: str) -> Model:
    """``mini``, or a folder with ``transformer/`` in diffusers' layout."""
    import diffusers

    folder = MINI if model == "mini" else Path(model)
    config_file = folder / "transformer" / "config.json"
    if not config_file.is_file():
        raise UsageError(f"model {model}: no {config_file}; give mini, or a folder in diffusers' layout")
    config = json.loads(config_file.read_text(encoding="utf-8"))
    family = family_class(config.get("_class_name", "unnamed"))
    if not (folder / PIXELS).is_file():
        raise UsageError(
            f"model {model}: no {PIXELS} beside transformer/, and autoencoders are not read yet; give mini"
        )
    pixels = json.loads((folder / PIXELS).read_text(encoding="utf-8"))
    transformer = getattr(diffusers, family.transformer_class).from_pretrained(folder / "transformer")
    return Model(transformer.eval().float().requires_grad_(False), family(config, pixels["channels"]), folder, pixels)


def latents_of(model: Model, folder: Path | None) -> Latents:
    """The pictures of ``folder`` (or the model's own corpus) as latents of ``model``."""
    pictures = folder if folder is not None else model.folder / "corpus"
    return pixel_latents(pictures, model.family, tier=model.pixels["tier"], scale=model.pixels["scale"])


def adapter_of(model: Model, path: Path | None, *, rank: int, seed: int) -> tuple[dict[str, nn.Parameter], Lora, str]:
    """The adapter of ``path``, else the model's own, else a fresh one: parameters, settings, SHA-256 or ``fresh``."""
    own = model.folder / "adapter" / "adapter.safetensors"
    file = path or (own if own.is_file() else None)
    if file is None:
        lora = Lora(rank, rank, model.family.lora_targets)
        return attach(model.transformer, lora, seed), lora, "fresh"
    return *attach_file(model.transformer, file), hash_of([file])


def hash_of(files: list[Path]) -> str:
    """SHA-256 over names and contents."""
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()
