"""The modules that several LoRA files have in common, whatever each file calls them.

    found = paired([read(a), read(b)])
    found.modules[0].inner_products()       # [files, files], Eq. 15 of docs/method.md
    found.alone[1]                          # modules of the second file without a partner

Names meet with their dots folded to _, a model's original names as diffusers' (``original_names``). Where one file has
a fused module and another its parts, the fused one is split, which changes no inner product: the parts' outputs stand
one below the other, and their displacements with them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.base import rank_space
from analysis.blocks import OTHER, block_of
from analysis.errors import UsageError
from analysis.lora.file import LoraFile, LoraModule
from analysis.lora.original_names import Table, fold, table_for
from analysis.lora.split import split

_FOLDED_BLOCK = re.compile(r"(?P<stack>\w*?(?:blocks|layers|refiner))_(?P<index>\d+)_")


@dataclass(frozen=True, eq=False)
class PairedModule:
    """One module that every file has. name: diffusers', where it is known; files: one a file, in their order."""

    name: str
    block: str
    files: tuple[LoraModule, ...]

    def inner_products(self) -> np.ndarray:
        """<dW_a, dW_b> of every two files [files, files], float64 (Eq. 15)."""
        return rank_space.inner_products(
            [module.up for module in self.files],
            [module.down for module in self.files],
            np.array([module.scale for module in self.files]),
        )


@dataclass(frozen=True, eq=False)
class Paired:
    """``modules`` in the order of the first file; ``alone``: a file's modules that not every other has, file by file.

    A file's names in ``alone`` are diffusers' too. ``warnings`` are lines for the user, the files' own among them.
    """

    files: tuple[LoraFile, ...]
    modules: tuple[PairedModule, ...]
    alone: tuple[tuple[str, ...], ...]
    warnings: tuple[str, ...]


def paired(files: Sequence[LoraFile]) -> Paired:
    """Pair the modules of two files or more.

    Raises UsageError where nothing pairs, a module has two names in one file, or its widths are not the same in all.
    """
    if len(files) < 2:
        raise UsageError(f"{len(files)} LoRA files given: give two or more to compare")
    folded = [{fold(name): module for name, module in file.modules.items()} for file in files]
    table = table_for(name for names in folded for name in names)
    renamed = [_renamed(names, table, file) for names, file in zip(folded, files, strict=True)]
    heights = {name: module.shape[0] for names in renamed for name, module in names.items()}
    known = [split(names, table, heights, file.path) for names, file in zip(renamed, files, strict=True)]
    common = [name for name in known[0] if all(name in names for names in known)]
    if not common:
        raise UsageError(_nothing(files))
    spelled = {fold(name): name for file in files for name in file.modules if "." in name}
    modules = tuple(
        PairedModule(name, _block(name, table), tuple(names[key] for names in known))
        for key, name in ((key, _dotted(key, table, spelled)) for key in common)
    )
    for module in modules:
        _check_widths(module, files)
    # A part without a LoRA of its own is zero in a fused one: that is nobody's module.
    partners = set(common)
    alone = tuple(
        tuple(
            _dotted(key, table, spelled)
            for key, module in names.items()
            if key not in partners and (key in whole or module.up.any())
        )
        for names, whole in zip(known, renamed, strict=True)
    )
    return Paired(tuple(files), modules, alone, (*(line for file in files for line in file.warnings), *_rules(files)))


def _renamed(names: Mapping[str, LoraModule], table: Table, file: LoraFile) -> dict[str, LoraModule]:
    """By diffusers' folded names, where one module here is one there; fused ones keep theirs."""
    found: dict[str, LoraModule] = {}
    for name, module in names.items():
        parts = table.parts(name)
        new = fold(parts[0]) if len(parts) == 1 else name
        if new in found:
            raise UsageError(f"{file.path}: {found[new].name} and {module.name} are one module by two names; keep one")
        found[new] = module
    return found


def _dotted(folded: str, table: Table, spelled: Mapping[str, str]) -> str:
    """A name with its dots, if a file or the table tells where they are."""
    return spelled.get(folded) or table.dotted(folded) or folded


def _block(name: str, table: Table) -> str:
    """The block by diffusers' name; of a folded name, the list of blocks it begins with."""
    if parts := table.parts(fold(name)):
        return block_of(parts[0])
    if "." in name:
        return block_of(name)
    found = _FOLDED_BLOCK.match(name)
    return f"{found['stack']}.{found['index']}" if found else OTHER


def _check_widths(module: PairedModule, files: Sequence[LoraFile]) -> None:
    first = module.files[0]
    for file, other in zip(files, module.files, strict=True):
        if other.shape != first.shape:
            raise UsageError(
                f"{module.name} is {list(first.shape)} in {files[0].path} and {list(other.shape)} in {file.path}: "
                "adapters of different base models; give adapters of one"
            )


def _nothing(files: Sequence[LoraFile]) -> str:
    examples = ", ".join(f"{file.path} has {next(iter(file.modules)):.100}" for file in files)
    return f"no module that all files have ({examples}): give adapters of one model that train the same modules"


def _rules(files: Sequence[LoraFile]) -> tuple[str, ...]:
    """One line where scales were found by different rules."""
    if len({frozenset(file.rules) for file in files}) < 2:
        return ()
    each = "; ".join(f"{file.path} by {', '.join(file.rules)}" for file in files)
    return (f"scales found by different rules, so norms may not compare: {each}",)
