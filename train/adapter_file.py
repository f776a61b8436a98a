"""A LoRA file of any spelling, as the factors of one adapter of a model: one rank and one scale, its modules' names.

Original names become diffusers' and a fused query, key and value become three (``analysis.lora``). A module of a
smaller rank gets zeros, which stay zero and change no gradient; one of another scale gets it in ``up``. So every change
of weights is the file's. What would leave a part of the file out is refused.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from analysis.errors import UsageError
from analysis.lora.file import LoraFile, LoraModule, read
from analysis.lora.original_names import Table, fold, table_for
from analysis.lora.scale_rules import ALPHA_IS_RANK, SIDECAR
from analysis.lora.split import split


@dataclass(frozen=True)
class AdapterFile:
    """tensors: ``MODULE.lora_A.weight`` [rank, in] and ``MODULE.lora_B.weight`` [out, rank]; notes: for the user."""

    tensors: dict[str, Tensor]
    rank: int
    alpha: float
    modules: tuple[str, ...]
    notes: tuple[str, ...]


def of_model(transformer: nn.Module, path: Path) -> AdapterFile:
    """The LoRA ``path`` for ``transformer``, which has no adapter yet."""
    file = whole(path)
    modules = named(file, transformer)
    scale, rank = common_scale(modules, path), max(module.rank for module in modules.values())
    tensors = {}
    for name in sorted(modules):
        module = modules[name]
        if module.shape != (shape := own_shape(transformer, name)):
            given, taken = (module.up, [shape[0], module.rank]), (module.down, [module.rank, shape[1]])
            part, (factor, wanted) = ("A", taken) if module.shape[1] != shape[1] else ("B", given)
            raise UsageError(f"{path}: {name}.lora_{part}.weight is {list(factor.shape)}, this model takes {wanted}")
        more = rank - module.rank
        # A scale of its own goes into up; a factor of exactly 1 leaves every bit.
        up = module.up if module.scale == scale else module.up * np.float32(module.scale / scale)
        tensors[f"{name}.lora_A.weight"] = as_tensor(np.pad(module.down, ((0, more), (0, 0))))
        tensors[f"{name}.lora_B.weight"] = as_tensor(np.pad(up, ((0, 0), (0, more))))
    return AdapterFile(tensors, rank, tidy(scale * rank), tuple(sorted(modules)), notes(file, modules, scale, rank))


def whole(path: Path) -> LoraFile:
    """The file ``path``. UsageError for a folder, and where ranks differ and nothing tells the scales."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: give the safetensors file of an adapter")
    file = read(path)
    ranks = sorted({module.rank for module in file.modules.values() if module.rule == ALPHA_IS_RANK})
    if len(ranks) > 1:
        raise UsageError(
            f"{path}: modules of ranks {ranks} and no alpha, so their scales cannot be told; give a file with alphas"
        )
    return file


def settings(path: Path) -> dict[str, float] | None:
    """``rank`` and ``alpha`` of a file whose modules all have the same; None where only a model can tell."""
    found = {(module.rank, module.scale) for module in whole(path).modules.values()}
    if len(found) > 1:
        return None
    ((rank, scale),) = found
    return {"rank": rank, "alpha": tidy(scale * rank)}


def files_of(path: Path) -> list[Path]:
    """What decides an adapter: its file, and PEFT's settings beside it where they give its scales."""
    return [path, path.parent / SIDECAR] if SIDECAR in read(path).rules else [path]


def named(file: LoraFile, transformer: nn.Module) -> dict[str, LoraModule]:
    """The file's modules by this model's names. UsageError where one has no partner."""
    own = {fold(name): name for name, module in transformer.named_modules() if isinstance(module, nn.Linear)}
    heights = {folded: own_shape(transformer, name)[0] for folded, name in own.items()}
    given = {fold(name): module for name, module in file.modules.items()}
    table = table_for([*given, *own])
    renamed = {new_name(name, table, own): module for name, module in given.items()}
    if len(renamed) < len(given):
        raise UsageError(f"{file.path}: two of its modules are one of this model by two names; keep one")
    parts = split({name: module for name, module in renamed.items() if name not in own}, table, heights, file.path)
    found = {name: module for name, module in renamed.items() if name in own}
    if twice := found.keys() & parts.keys():
        raise UsageError(f"{file.path}: {own[min(twice)]} is there twice, alone and in a fused module; keep one")
    for name, module in parts.items():
        if name in renamed or module.up.any():  # a part of zeros alone had no LoRA
            found[name] = module if name in renamed else trimmed(module)
    found = found or dict(parts)
    strange = [module.name for name, module in found.items() if name not in own]
    if len(strange) == len(found):
        raise UsageError(
            f"{file.path}: a LoRA for another model: the modules of its tensors, such as {min(strange)}, are none in "
            "this model; give one made for it"
        )
    if strange:
        raise UsageError(
            f"{file.path}: {len(strange)} modules without a partner in this model, such as {min(strange)}; "
            "a part of it would be left out: give a file without them, or the model it was made for"
        )
    return {own[name]: module for name, module in found.items()}


def new_name(folded: str, table: Table, own: Mapping[str, str]) -> str:
    """Diffusers' folded name of a module that is one there; a fused one keeps its own."""
    parts = table.parts(folded)
    return fold(parts[0]) if folded not in own and len(parts) == 1 else folded


def trimmed(part: LoraModule) -> LoraModule:
    """A part of a fused module without the ranks that are another part's, where up has zeros alone."""
    used = part.up.any(axis=0)
    return replace(part, up=part.up[:, used], down=part.down[used])


def own_shape(transformer: nn.Module, name: str) -> tuple[int, int]:
    """[out, in] of the linear module ``name``."""
    module = transformer.get_submodule(name)
    return int(module.out_features), int(module.in_features)  # pyright: ignore[reportArgumentType]


def common_scale(modules: Mapping[str, LoraModule], path: Path) -> float:
    """The scale that most modules have; of equally many the largest."""
    counts = Counter(module.scale for module in modules.values())
    scale = max(counts, key=lambda each: (counts[each], each))
    if not scale:
        raise UsageError(f"{path}: scale 0, so nothing of it would be seen; give a file with an alpha above 0")
    return scale


def tidy(alpha: float) -> float:
    """A whole number where rounding alone sets it apart from one."""
    return float(round(alpha)) if abs(alpha - round(alpha)) < 1e-9 * abs(alpha) else alpha


def as_tensor(factor: np.ndarray) -> Tensor:
    """float32."""
    return torch.from_numpy(np.ascontiguousarray(factor, dtype=np.float32))


def notes(file: LoraFile, modules: Mapping[str, LoraModule], scale: float, rank: int) -> tuple[str, ...]:
    """Lines for the user: what the reader warns of, and what was made one."""
    lines = list(file.warnings)
    if file.text_encoder:
        lines.append(f"{file.path}: {len(file.text_encoder)} modules of text encoders are left out")
    padded = sum(module.rank < rank for module in modules.values())
    if padded:
        lines.append(f"{file.path}: {padded} of {len(modules)} modules have a rank below {rank}; zeros are added")
    scaled = sum(module.scale != scale for module in modules.values())
    if scaled:
        lines.append(
            f"{file.path}: {scaled} of {len(modules)} modules have another scale than {scale:g}; it goes into up, so "
            "the change of weights is the same and their gradients are of the adapter as it is here"
        )
    return tuple(lines)
