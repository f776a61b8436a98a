"""An adapter as sd-scripts and musubi-tuner write it: ``lora_unet_MODULE.lora_down.weight``, ``.lora_up``, ``.alpha``.

Module names are those of a model's original code, where one module can be several of diffusers': the family's table
``kohya_modules`` says which. The parts of a fused module stand in blocks, so its rank is theirs times their number,
and alpha grows with it: the scale, alpha / rank, stays.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from analysis.errors import UsageError
from train import tensors_file
from train.adapter import Lora, plain_name
from train.families import Family

ADAPTER = "adapter-kohya.safetensors"
DOWN, UP = ".lora_A.weight", ".lora_B.weight"


def save(path: Path, parameters: Mapping[str, Tensor], lora: Lora, family: Family, transformer: nn.Module) -> bool:
    """Write the adapter of ``transformer`` in kohya's form, atomically; False where ``path`` holds just it already."""
    about = {
        "ss_network_module": "networks.lora",
        "ss_network_dim": str(lora.rank),
        "ss_network_alpha": str(lora.alpha),
    }
    return tensors_file.write(path, converted(parameters, lora, family, transformer), about)


def converted(
    parameters: Mapping[str, Tensor], lora: Lora, family: Family, transformer: nn.Module
) -> dict[str, Tensor]:
    """Tensors by kohya's names. UsageError for a module that has no such name."""
    weights = {plain_name(name): p.detach().cpu() for name, p in parameters.items()}
    tensors: dict[str, Tensor] = {}
    for fused, parts in fused_modules(weights, family).items():
        down, up = in_blocks(weights, parts, lora.rank, transformer)
        name = f"lora_unet_{fused.replace('.', '_')}"
        tensors[f"{name}.lora_down.weight"], tensors[f"{name}.lora_up.weight"] = down, up
        tensors[f"{name}.alpha"] = torch.tensor(lora.alpha * len(parts))
    return tensors


def fused_modules(weights: Mapping[str, Tensor], family: Family) -> dict[str, tuple[str, ...]]:
    """The parts, by diffusers' names, of every module by its original name; parts without a LoRA included."""
    modules = [name.removesuffix(DOWN) for name in weights if name.endswith(DOWN)]
    if not family.kohya_modules:
        return {module: (module,) for module in modules}
    found: dict[str, tuple[str, ...]] = {}
    for module in modules:
        index = next(iter(re.findall(r"\d+", module)), "")
        for fused, parts in family.kohya_modules:
            if module in (part.format(index) for part in parts):
                found[fused.format(index)] = tuple(part.format(index) for part in parts)
                break
        else:
            raise UsageError(f"--format kohya: {module} has no name there; leave it out of --targets, or use diffusers")
    return found


def in_blocks(
    weights: Mapping[str, Tensor], parts: Sequence[str], rank: int, transformer: nn.Module
) -> tuple[Tensor, Tensor]:
    """down [parts x rank, in] and up [sum of out, parts x rank], block-diagonal; zero where a part has no LoRA."""
    width = next(weights[part + DOWN].shape[1] for part in parts if part + DOWN in weights)
    downs, ups = [], []
    for part in parts:
        height = transformer.get_submodule(part).out_features
        downs.append(weights.get(part + DOWN, torch.zeros(rank, width)))
        ups.append(weights.get(part + UP, torch.zeros(height, rank)))  # pyright: ignore[reportArgumentType]
    return torch.cat(downs), torch.block_diag(*ups)
