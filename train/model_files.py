"""Finding a transformer's files by what the user named, and seeing that none is missing.

A name is ``mini``, a folder in diffusers' layout, the transformer's folder inside one, or a name on the Hugging
Face hub, which is looked up in that library's own cache before it is fetched.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import UsageError

MINI = Path(__file__).with_name("mini")
CONFIG = "config.json"
WEIGHTS = "diffusion_pytorch_model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
TAKES = "give mini, a folder in diffusers' layout, or a name on the hub such as owner/name"


@dataclass(frozen=True)
class ModelFiles:
    """Where a model lies. folder: the whole of it; transformer: its part with config.json and weights."""

    folder: Path
    transformer: Path
    config: dict[str, Any]

    @property
    def all(self) -> list[Path]:
        """The transformer's configuration and weights."""
        return sorted(p for p in self.transformer.iterdir() if p.suffix in (".json", ".safetensors"))


def find(model: str, parts: tuple[str, ...] = ("transformer",)) -> ModelFiles:
    """The files of ``model``, complete as far as names tell. UsageError that says which one is missing.

    parts: the folders to fetch of a model on the hub.
    """
    folder = MINI if model == "mini" else Path(model)
    if not folder.exists():
        folder = fetched(model, parts)
    transformer = folder / "transformer"
    if not (transformer / CONFIG).is_file() and "_class_name" in configuration(folder / CONFIG):
        folder, transformer = folder.parent, folder
    if not (transformer / CONFIG).is_file():
        raise UsageError(f"model {model}: no {transformer / CONFIG}; {TAKES}")
    config = configuration(transformer / CONFIG)
    if "_class_name" not in config:
        raise UsageError(f"model {model}: {transformer / CONFIG} names no model class (_class_name); {TAKES}")
    missing = [name for name in weights(transformer) if not (transformer / name).is_file()]
    if missing:
        raise UsageError(
            f"model {model}: no {missing[0]} in {transformer}; fetch the model again, with all its weights"
        )
    return ModelFiles(folder, transformer, config)


def configuration(file: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file."""
    if not file.is_file():
        return {}
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: not readable as JSON ({error}); fetch the model again") from None
    return content if isinstance(content, dict) else {}


def weights(transformer: Path) -> list[str]:
    """Names of the files that hold the weights: one, or those that the index names."""
    if not (transformer / INDEX).is_file():
        return [WEIGHTS]
    shards = configuration(transformer / INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise UsageError(f"{transformer / INDEX}: holds no weight_map; fetch the model again")
    return sorted(set(shards.values()))


def fetched(model: str, parts: tuple[str, ...] = ("transformer",)) -> Path:
    """The folder of a model on the hub, from the cache or fetched into it, with those ``parts`` and its index."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    nothing = f"model {model}: no such folder, and"
    if model.count("/") != 1:
        raise UsageError(f"{nothing} no name on the hub (owner/name) either; {TAKES}")
    try:
        return Path(snapshot_download(model, allow_patterns=["*.json", *(f"{part}/*" for part in parts)]))
    except HFValidationError as error:
        raise UsageError(f"{nothing} no name on the hub ({one_line(error)}); {TAKES}") from None
    except OSError as error:
        raise UsageError(
            f"{nothing} it is neither in the hub's cache nor could transformer/ be fetched from huggingface.co "
            f"({one_line(error)}); {TAKES}"
        ) from None


def one_line(error: Exception) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
