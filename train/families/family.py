"""What the rest of the project asks of a model family; one file a family beside this one.

A family knows how its transformer wants latents, time, conditioning and positions, and in which
order its blocks stand. It holds no weights. docs/adding-a-family.md shows one from end to end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.objective import StepInput
from train.rope import Rope


class Family(Protocol):
    """One model's conventions. Latents are [B, C, H, W]; where ``clips``, [B, C, F, H, W] as well."""

    name: ClassVar[str]
    transformer_class: ClassVar[str]  # of diffusers; how a model's family is found
    block_lists: ClassVar[tuple[str, ...]]  # attributes that hold the blocks, in depth order
    lora_targets: ClassVar[str]  # regular expression over module names
    clips: ClassVar[bool]  # whether latents may have frames
    #: Why ``torch.func`` cannot differentiate it, as the end of a sentence; empty where it can.
    loop_only: ClassVar[str]
    #: For ``train.kohya``: names of the original code, and the modules each one is made of; {} is the block's number.
    #: Empty where the names are diffusers' own.
    kohya_modules: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]
    channels: int  # of a latent
    patch: int  # latent pixels along a token's side

    def __init__(self, config: Mapping[str, Any], channels: int | None = None) -> None:
        """config: the transformer's; channels: of the latents, where they are known. UsageError if they clash."""
        ...

    @property
    def longest(self) -> int | None:
        """Tokens along a side that it has positions for; None: any number."""
        ...

    @property
    def condition_shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """What an image's conditioning holds: shapes without a batch axis, None for the number of text tokens."""
        ...

    def arguments(self, step: StepInput) -> dict[str, Any]:
        """Keyword arguments of the transformer's forward. Time stays in float32."""
        ...

    def velocity(self, output: Any, shape: torch.Size) -> Tensor:
        """The transformer's answer as noise - x0, in the ``shape`` of x_sigma."""
        ...

    def keep_time(self, transformer: torch.nn.Module) -> None:
        """Called once, after loading: see to it that the transformer does not round its time to half precision."""
        ...

    def stretched(self, transformer: torch.nn.Module, rope: Rope) -> AbstractContextManager[None]:
        """A context in which ``transformer`` uses ``rope``; raises UsageError where there is no RoPE."""
        ...


def grid(family: Family, height: int, width: int) -> tuple[int, int]:
    """Tokens (rows, columns) of a latent of height x width."""
    return height // family.patch, width // family.patch


def image_tokens(family: Family, shape: Sequence[int]) -> int:
    """Image tokens of a latent [C, H, W] or [C, F, H, W]."""
    return prod(grid(family, shape[-2], shape[-1])) * prod(shape[1:-2])


def blocks(family: Family, transformer: torch.nn.Module) -> list[str]:
    """The transformer's blocks in depth order, named as the model names them."""
    return [f"{stack}.{i}" for stack in family.block_lists for i in range(len(getattr(transformer, stack)))]


def block_of(family: Family, parameter: str) -> str:
    """The block a parameter belongs to, or ``other`` where it is in none."""
    stack, _, rest = parameter.partition(".")
    return f"{stack}.{rest.split('.')[0]}" if stack in family.block_lists else "other"


def channels_of(name: str, takes: int, given: int | None) -> int:
    """The channels a model ``takes``; UsageError where the latents' are others."""
    if given not in (None, takes):
        raise UsageError(
            f"latents with {given} channels: this {name} takes {takes}; give latents of the model's own autoencoder"
        )
    return takes


def check_latent(family: Family, shape: Sequence[int]) -> None:
    """UsageError where a latent [C, H, W] or [C, F, H, W] is not one that ``family`` takes whole."""
    if len(shape) != 3 and not (family.clips and len(shape) == 4):
        takes = "[C, H, W] or [C, F, H, W]" if family.clips else "[C, H, W], without frames"
        raise UsageError(f"latent of shape {list(shape)}: {family.name} takes {takes}")
    channels_of(family.name, family.channels, shape[0])
    height, width = shape[-2:]
    if height % family.patch or width % family.patch:
        # Some models crop such a latent without a word.
        raise UsageError(
            f"latent of {height} x {width}: {family.name} takes sides that its patch of {family.patch} divides; "
            "take pictures of another size or another tier"
        )
    rows, columns = grid(family, height, width)
    if family.longest is not None and max(rows, columns) > family.longest:
        raise UsageError(
            f"latent of {height} x {width}: {rows} x {columns} tokens, and this {family.name} has positions for "
            f"{family.longest} along a side; take a smaller tier"
        )


def check_condition(family: Family, name: str, condition: Mapping[str, Tensor]) -> None:
    """UsageError where the conditioning of the image ``name`` lacks a tensor or has one of another shape."""
    for key, shape in family.condition_shapes.items():
        wanted = "[" + ", ".join("tokens" if n is None else str(n) for n in shape) + "]"
        if key not in condition:
            raise UsageError(f"conditioning of {name}: no {key} {wanted}, which {family.name} takes; encode it anew")
        found = condition[key].shape
        if len(found) != len(shape) or any(n not in (None, m) for n, m in zip(shape, found, strict=True)):
            raise UsageError(f"conditioning of {name}: {key} is {list(found)}, {family.name} takes {wanted}")


def text_tokens(family: Family, condition: Mapping[str, Tensor]) -> int:
    """Text tokens of one image's conditioning, which has no batch axis."""
    lengths = [condition[key].shape[0] for key, shape in family.condition_shapes.items() if shape[0] is None]
    return max(lengths, default=0)


def unconditional(family: Family, batch: int) -> dict[str, Tensor]:
    """The condition of a model that was trained without text, one zero token: [batch, ...]."""
    return {
        key: torch.zeros(batch, *(1 if n is None else n for n in shape))
        for key, shape in family.condition_shapes.items()
    }


@contextmanager
def with_positions(
    transformer: torch.nn.Module, attribute: str, rope: Rope, stretched: Callable[[Any, Rope], Any]
) -> Iterator[None]:
    """Within it ``transformer.attribute`` is ``stretched(the native one, rope)``; native changes nothing at all."""
    if rope.is_native:
        yield
        return
    native = getattr(transformer, attribute)
    setattr(transformer, attribute, stretched(native, rope))
    try:
        yield
    finally:
        setattr(transformer, attribute, native)


def without_rope(family: Family, rope: Rope) -> AbstractContextManager[None]:
    """``stretched`` of a model without rotary positions."""
    if not rope.is_native:
        raise UsageError(f"arm term rope: {family.name} has no rotary positions to stretch; leave the term out")
    return nullcontext()
