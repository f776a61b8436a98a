"""Time in float32 for models that round it.

Flux and Qwen-Image cast sigma to the dtype of their activations before they embed it: in bfloat16, by the
weights' dtype or by autocast, 506 of 1,000 levels stay distinct.
"""

from typing import Any

from torch import Tensor, nn


def embed_in_float32(transformer: nn.Module, embedding: str, scale: float) -> None:
    """Let the submodule ``embedding`` take ``timestep`` x scale as the transformer was given it, not as it rounded it.

    In float32 this is what it takes anyway, to the bit.
    """
    given: list[Tensor] = []

    def remember(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        given[:] = [kwargs["timestep"]]

    def restore(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (given.pop().float() * scale, *args[1:])

    transformer.register_forward_pre_hook(remember, with_kwargs=True)
    transformer.get_submodule(embedding).register_forward_pre_hook(restore)
