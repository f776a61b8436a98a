"""Conditioning in caches of sd-scripts: ``{stem}_{arch}_te.npz``, or for Anima a safetensors file of the same stem.

Flux: ``t5_out`` and ``l_pooled``. SD3: ``lg_out``, ``t5_out`` and ``lg_pooled``, joined as its pipeline joins them.
Anima: ``crossattn_emb``, or ``prompt_embeds`` with token ids, which then go through the model's text conditioner.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.functional import pad

from analysis.errors import UsageError
from analysis.safetensors_file import opened as opened_safetensors
from train.cache.cached import Stored
from train.cache.index import file_hash
from train.families import Family

Read = Callable[[str], Tensor]


def text_of(folder: Path, stem: str, arch: str, family: Family, model: Path) -> Mapping[str, Stored]:
    """The conditioning of the image ``stem``, by the family's names. UsageError where its file is not there."""
    path = next((p for end in ("npz", "safetensors") if (p := folder / f"{stem}_{arch}_te.{end}").is_file()), None)
    if path is None:
        raise UsageError(f"{folder}: no {stem}_{arch}_te.npz for the latents of {stem}; cache its text too")
    shapes, read = contents(path)
    for flag in ("apply_t5_attn_mask", "apply_lg_attn_mask"):
        if flag in shapes and bool(read(flag)):
            raise UsageError(f"{path} was made with {flag}, and masked text is not fed here; cache it without")
    made = {"flux": flux, "sd3": sd3, "anima": anima}[arch](path, shapes, read, family, model)
    sha256 = file_hash(path)
    return {name: Stored(shape, f"{sha256} {name}", reading) for name, (shape, reading) in made.items()}


def contents(path: Path) -> tuple[dict[str, tuple[int, ...]], Read]:
    """Shapes by name, and what reads an array."""
    if path.suffix == ".npz":
        from train.cache import kohya

        return kohya.shapes(path), lambda name: kohya.array(path, name)
    with opened_safetensors(path) as file:
        shapes = {name: tensor.layout.shape for name, tensor in file.tensors.items()}
    return shapes, lambda name: tensor(path, name)


def tensor(path: Path, name: str) -> Tensor:
    """One tensor of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path}: {name} cannot be read ({error}); remove it and make it again") from None


Made = dict[str, tuple[tuple[int, ...], Callable[[], Tensor]]]


def flux(path: Path, shapes: Mapping[str, tuple[int, ...]], read: Read, family: Family, model: Path) -> Made:
    need(path, shapes, "t5_out", "l_pooled")
    return {
        "encoder_hidden_states": (shapes["t5_out"], lambda: read("t5_out")),
        "pooled_projections": (shapes["l_pooled"], lambda: read("l_pooled")),
    }


def sd3(path: Path, shapes: Mapping[str, tuple[int, ...]], read: Read, family: Family, model: Path) -> Made:
    need(path, shapes, "lg_out", "lg_pooled", "t5_out")
    (tokens, narrow), (more, wide) = shapes["lg_out"], shapes["t5_out"]
    if narrow > wide:
        raise UsageError(f"{path}: lg_out is wider than t5_out, {narrow} beside {wide}; cache it again")

    def joined() -> Tensor:
        return torch.cat([pad(read("lg_out"), (0, wide - narrow)), read("t5_out")])

    return {
        "encoder_hidden_states": ((tokens + more, wide), joined),
        "pooled_projections": (shapes["lg_pooled"], lambda: read("lg_pooled")),
    }


def anima(path: Path, shapes: Mapping[str, tuple[int, ...]], read: Read, family: Family, model: Path) -> Made:
    for name in ("crossattn_emb", "crossattn_emb_v0"):
        if name in shapes:
            return {"encoder_hidden_states": (shapes[name], lambda name=name: read(name))}
    variant = "_v0" if "prompt_embeds_v0" in shapes else ""  # of shuffled captions, the one as it was written
    names = [f"{name}{variant}" for name in ("prompt_embeds", "attn_mask", "t5_input_ids", "t5_attn_mask")]
    need(path, shapes, *names)
    if not (model / "text_conditioner").is_dir():
        raise UsageError(f"{path}: text from before Anima's text conditioner, and {model} has no text_conditioner/")
    least, width = conditioner(model).config.min_sequence_length, conditioner(model).config.target_dim

    @torch.no_grad()
    def conditioned() -> Tensor:
        states, mask, ids, target_mask = (read(name)[None] for name in names)
        return conditioner(model)(
            source_hidden_states=states.float(), target_input_ids=ids.long(), target_attention_mask=target_mask,
            source_attention_mask=mask,
        )[0]  # fmt: skip

    return {"encoder_hidden_states": ((max(*shapes[names[2]], least), width), conditioned)}


@lru_cache(maxsize=1)
def conditioner(model: Path) -> Any:
    """Anima's text conditioner, in float32."""
    from diffusers import AnimaTextConditioner

    return AnimaTextConditioner.from_pretrained(model / "text_conditioner", torch_dtype=torch.float32).eval()


def need(path: Path, shapes: Mapping[str, tuple[int, ...]], *names: str) -> None:
    """UsageError unless all of ``names`` are there."""
    if missing := [name for name in names if name not in shapes]:
        raise UsageError(f"{path}: no {missing[0]} among {', '.join(shapes) or 'none'}; cache the text again")
