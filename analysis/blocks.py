"""The transformer block a tensor's name belongs to, read from the name alone."""

import re
from collections.abc import Iterable

OTHER = "other"
_NUMBERED = re.compile(r"(?:^|\.)((?:[^.]+\.)?\d+)(?=\.|$)")


def block_of(name: str) -> str:
    """The first list of modules in a dotted name with its index, or ``other`` where there is none.

    ``transformer.transformer_blocks.3.attn.to_q.lora_A.weight`` -> ``transformer_blocks.3``: what stands before, such
    as the prefix of an adapter file, is no part of a block's name.
    """
    found = _NUMBERED.search(name)
    return found.group(1) if found else OTHER


def in_depth_order(name: str) -> list[tuple[int, str]]:
    """Sort key that puts ``blocks.2`` before ``blocks.10``."""
    parts = re.split(r"(\d+)", name)  # text, digits, text, ...
    return [(len(part.lstrip("0")) if place % 2 else 0, part) for place, part in enumerate(parts)]


_LISTS = ("noise_refiner", "context_refiner", "transformer_blocks", "double_blocks", "layers", "blocks")
"""Lists of blocks that come before others in the models that have several."""


def depth_order(blocks: Iterable[str]) -> list[str]:
    """Blocks as data pass through them: refiners, then double-stream, then single-stream blocks; ``other`` last."""

    def place(block: str) -> tuple[int, list[tuple[int, str]]]:
        name = block.rpartition(".")[0]
        first = len(_LISTS) + 1 if block == OTHER else _LISTS.index(name) if name in _LISTS else len(_LISTS)
        return first, in_depth_order(block)

    return sorted(blocks, key=place)
