"""What the rest of the project asks of a model family; one file a family beside this one.

A family knows how its transformer wants latents, time, conditioning and positions, and in which
order its blocks stand. It holds no weights.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from train.objective import StepInput
from train.rope import Rope


class Family(Protocol):
    """One model's conventions. Latents are [B, C, H, W]."""

    name: ClassVar[str]
    transformer_class: ClassVar[str]  # of diffusers; how a model's family is found
    block_lists: ClassVar[tuple[str, ...]]  # attributes that hold the blocks, in depth order
    lora_targets: ClassVar[str]  # regular expression over module names
    #: For ``train.kohya``: names of the original code, and the modules each one is made of; {} is the block's number.
    #: Empty where the names are diffusers' own.
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]
    channels: int  # of a latent
    patch: int  # latent pixels along a token's side

    def __init__(self, config: Mapping[str, Any], channels: int) -> None: ...

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward."""
        ...

    def velocity(self, output: Any, height: int, width: int) -> Tensor:
        """The transformer's answer as noise - x0, [B, C, H, W]."""
        ...

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """A context in which ``transformer`` uses ``rope``; raises UsageError where there is no RoPE."""
        ...

    def unconditional(self, batch: int) -> dict[str, Tensor]:
        """The condition of a model that was trained without text."""
        ...


def grid(family: Family, height: int, width: int) -> tuple[int, int]:
    """Tokens (rows, columns) of a latent of height x width."""
    return height // family.patch, width // family.patch


def blocks(family: Family, transformer: torch.nn.Module) -> list[str]:
    """The transformer's blocks in depth order, named as the model names them."""
    return [f"{stack}.{i}" for stack in family.block_lists for i in range(len(getattr(transformer, stack)))]


def block_of(family: Family, parameter: str) -> str:
    """The block a parameter belongs to, or ``other`` where it is in none."""
    stack, _, rest = parameter.partition(".")
    return f"{stack}.{rest.split('.')[0]}" if stack in family.block_lists else "other"
