"""Conditioning in caches of sd-scripts: ``{stem}_{arch}_te.npz``, or for Anima a safetensors file of the same stem.

Flux: ``t5_out`` and ``l_pooled``. SD3: ``lg_out``, ``t5_out`` and ``lg_pooled``, joined as its pipeline joins them.
Anima: ``crossattn_emb``, or ``prompt_embeds`` with token ids, which then go through the model's text conditioner.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from analysis.errors import UsageError
from train.cache.arrays import Array, arrays
from train.cache.cached import Stored
from train.cache.index import file_hash
from train.families import Family


def text_of(folder: Path, stem: str, arch: str, family: Family, model: Path) -> Mapping[str, Stored]:
    """The conditioning of the image ``stem``, by the family's names. UsageError where its file is not there."""
    path = next((p for end in ("npz", "safetensors") if (p := folder / f"{stem}_{arch}_te.{end}").is_file()), None)
    if path is None:
        raise UsageError(f"{folder}: no {stem}_{arch}_te.npz for the latents of {stem}; cache its text too")
    there = arrays(path)
    for flag in ("apply_t5_attn_mask", "apply_lg_attn_mask"):
        if flag in there and there[flag].read().any():
            raise UsageError(f"{path} was made with {flag}, and masked text is not fed here; cache it without")
    made = {"flux": flux, "sd3": sd3, "anima": anima}[arch](path, there, family, model)
    sha256 = file_hash(path)
    return {name: Stored(shape, f"{sha256} {name}", reading) for name, (shape, reading) in made.items()}


There = Mapping[str, Array]
Made = dict[str, tuple[tuple[int, ...], Callable[[], Tensor]]]


def flux(path: Path, there: There, family: Family, model: Path) -> Made:
    text, pooled = (needed(path, there, name, axes).floating() for name, axes in (("t5_out", 2), ("l_pooled", 1)))
    return {"encoder_hidden_states": (text.shape, text.read), "pooled_projections": (pooled.shape, pooled.read)}


def sd3(path: Path, there: There, family: Family, model: Path) -> Made:
    wanted = (("lg_out", 2), ("t5_out", 2), ("lg_pooled", 1))
    lg, t5, pooled = (needed(path, there, name, axes).floating() for name, axes in wanted)
    (tokens, narrow), (more, wide) = lg.shape, t5.shape
    if narrow > wide:
        raise UsageError(f"{path}: lg_out is wider than t5_out, {narrow} beside {wide}; cache it again")

    def joined() -> Tensor:
        return torch.cat([pad(lg.read(), (0, wide - narrow)), t5.read()])

    return {
        "encoder_hidden_states": ((tokens + more, wide), joined),
        "pooled_projections": (pooled.shape, pooled.read),
    }


def anima(path: Path, there: There, family: Family, model: Path) -> Made:
    for name in ("crossattn_emb", "crossattn_emb_v0"):
        if name in there:
            ready = there[name].floating()
            return {"encoder_hidden_states": (ready.shape, ready.read)}
    variant = "_v0" if "prompt_embeds_v0" in there else ""  # of shuffled captions, the one as it was written
    wanted = (("prompt_embeds", 2), ("attn_mask", 1), ("t5_input_ids", 1), ("t5_attn_mask", 1))
    embeds, *others = (needed(path, there, f"{name}{variant}", axes) for name, axes in wanted)
    parts = (embeds.floating(), *others)
    if not (model / "text_conditioner").is_dir():
        raise UsageError(f"{path}: text from before Anima's text conditioner, and {model} has no text_conditioner/")
    least, width = conditioner(model).config.min_sequence_length, conditioner(model).config.target_dim

    @torch.no_grad()
    def conditioned() -> Tensor:
        states, mask, ids, target_mask = (part.read()[None] for part in parts)
        return conditioner(model)(
            source_hidden_states=states.float(), target_input_ids=ids.long(), target_attention_mask=target_mask,
            source_attention_mask=mask,
        )[0]  # fmt: skip

    return {"encoder_hidden_states": ((max(*parts[2].shape, least), width), conditioned)}


@lru_cache(maxsize=1)
def conditioner(model: Path) -> Any:
    """Anima's text conditioner, in float32."""
    from diffusers import AnimaTextConditioner

    return AnimaTextConditioner.from_pretrained(model / "text_conditioner", torch_dtype=torch.float32).eval()


def needed(path: Path, there: There, name: str, axes: int) -> Array:
    """The array of that name. UsageError where it is missing or has another number of axes."""
    if name not in there:
        raise UsageError(f"{path}: no {name} among {', '.join(there) or 'none'}; cache the text again")
    if len(there[name].shape) != axes:
        raise UsageError(f"{path}: {name} has shape {list(there[name].shape)}, not {axes} axes; cache the text again")
    return there[name]
