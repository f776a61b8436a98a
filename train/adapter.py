"""LoRA adapters by peft: seeded per module, saved in diffusers' form, read in any.

A module computes W x + scale * up @ down x, with down [rank, in] (``lora_A``), up [out, rank]
(``lora_B``) and scale = alpha / rank. Each module's first weights are a function of the seed and the
module's name, so adding a target module changes no other module's.
"""

import json
import math
import re
import sys
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from analysis.errors import UsageError
from train import adapter_file, tensors_file
from train.crn import generator

PREFIX = "transformer."
METADATA = "lora_adapter_metadata"


@dataclass(frozen=True)
class Lora:
    """rank, alpha (scale = alpha / rank) and a regular expression over module names."""

    rank: int
    alpha: float
    targets: str

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def attach(transformer: nn.Module, lora: Lora, seed: int) -> dict[str, nn.Parameter]:
    """Freeze ``transformer``, add a fresh adapter (up = 0) and return its parameters by name, float32."""
    check_targets(transformer, lora.targets)
    transformer.requires_grad_(False)
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets)  # pyright: ignore[reportArgumentType]
    with torch.random.fork_rng(devices=[]):
        inject_adapter_in_model(config, transformer)
    parameters = adapter_parameters(transformer)
    for name, parameter in parameters.items():
        parameter.data = initial(name, parameter, seed).to(parameter.device)
    return parameters


def check_targets(transformer: nn.Module, targets: str) -> None:
    """Raise UsageError unless ``targets`` is a regular expression of linear modules, at least one."""
    modules = {name: transformer.get_submodule(name) for name in targeted(transformer, targets)}
    if not modules:
        raise UsageError(f"target modules '{targets}': none in this model; give a pattern of its module names")
    for name, module in modules.items():
        if not isinstance(module, nn.Linear):
            what = f"{name or 'the whole model'}, a {type(module).__name__}"
            raise UsageError(f"target modules '{targets}': {what}, is among them; give a pattern of linear ones alone")


def targeted(transformer: nn.Module, targets: str) -> list[str]:
    """Names of the modules that ``targets`` matches as a whole. UsageError where it is no regular expression."""
    try:
        pattern = re.compile(targets)
    except re.error as error:
        raise UsageError(f"target modules '{targets}': no regular expression ({error})") from None
    return [name for name, _ in transformer.named_modules() if pattern.fullmatch(name)]


def initial(name: str, parameter: Tensor, seed: int) -> Tensor:
    """down: uniform in +-1/sqrt(in), as peft's default; up: zero."""
    if ".lora_B." in name:
        return torch.zeros(parameter.shape)
    bound = 1 / math.sqrt(parameter.shape[1])
    unit = torch.rand(parameter.shape, generator=generator(seed, "adapter", (plain_name(name),)))
    return (2 * unit - 1) * bound


def adapter_parameters(transformer: nn.Module) -> dict[str, nn.Parameter]:
    """The adapter's parameters by the model's own names, in the model's order."""
    return {name: p for name, p in transformer.named_parameters() if ".lora_A." in name or ".lora_B." in name}


def plain_name(parameter: str) -> str:
    """``blocks.0.to_q.lora_A.default.weight`` -> ``blocks.0.to_q.lora_A.weight``."""
    return parameter.replace(".default.", ".")


def save(path: Path, parameters: dict[str, nn.Parameter] | dict[str, Tensor], lora: Lora) -> bool:
    """Write an adapter in diffusers' form, atomically; False where ``path`` holds just it already."""
    tensors = {PREFIX + plain_name(name): p for name, p in parameters.items()}
    metadata = {
        f"{PREFIX}{key}": value
        for key, value in {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": lora.targets}.items()
    }
    return tensors_file.write(path, tensors, {"format": "pt", METADATA: json.dumps(metadata, sort_keys=True)})


def read(path: Path) -> tuple[dict[str, Tensor], Lora]:
    """An adapter in diffusers' form: parameters by plain name, and its settings."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the safetensors file of an adapter")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name.removeprefix(PREFIX): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = json.loads((file.metadata() or {}).get(METADATA, "{}"))
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise UsageError(f"{path}: not a readable safetensors adapter ({error}); give one in diffusers' form") from None
    downs = [name for name in tensors if name.endswith(".lora_A.weight")]
    if not downs:
        raise UsageError(
            f"{path}: no lora_A weights among its {len(tensors)} tensors; give an adapter in diffusers' form"
        )
    ranks = {tensors[name].shape[0] for name in downs}
    if len(ranks) > 1:
        raise UsageError(f"{path}: modules of ranks {sorted(ranks)}; an adapter of one rank is needed here")
    rank = ranks.pop()
    alpha = float(metadata.get(f"{PREFIX}lora_alpha", rank))  # diffusers' rule: without metadata alpha = rank
    modules = sorted({name.removesuffix(".lora_A.weight") for name in downs})
    return tensors, Lora(rank, alpha, "|".join(map(re.escape, modules)))


def attach_file(transformer: nn.Module, path: Path) -> tuple[dict[str, nn.Parameter], Lora]:
    """Freeze ``transformer`` and add the adapter of ``path``, in whatever spelling it is."""
    found = adapter_file.of_model(transformer, path)
    if parent_process() is None:
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
    lora = Lora(found.rank, found.alpha, "|".join(map(re.escape, found.modules)))
    parameters = attach(transformer, lora, seed=0)
    for name, parameter in parameters.items():
        parameter.data = found.tensors[plain_name(name)].to(parameter.device)
    return parameters, lora


def fill(parameters: dict[str, nn.Parameter], path: Path) -> None:
    """Put the adapter of ``path`` into ``parameters``, float32. UsageError where names or shapes are others."""
    tensors, _ = read(path)
    missing = {plain_name(name) for name in parameters} ^ set(tensors)
    if missing:
        raise UsageError(f"{path}: {len(missing)} tensors without a partner in this model, such as {min(missing)}")
    for name, parameter in parameters.items():
        value = tensors[plain_name(name)]
        if value.shape != parameter.shape:
            raise UsageError(
                f"{path}: {plain_name(name)} is {list(value.shape)}, this model takes {list(parameter.shape)}"
            )
        parameter.data = value.to(parameter.device, torch.float32)
