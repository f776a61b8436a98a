"""What a tensor of a LoRA file is, by its name: of which module, and which part of it.

Prefixes that say what the module belongs to are dropped: ``base_model.model.`` (PEFT), ``transformer.`` (diffusers),
``diffusion_model.`` (ComfyUI), ``pipe.dit.`` (DiffSynth), ``lora_unet_`` (kohya, whose names have _ for every dot).
"""

import re
from dataclasses import dataclass
from typing import Literal

Role = Literal["up", "down", "alpha"]

_PREFIX = re.compile(
    r"(base_model\.model\.|model\.diffusion_model\.|diffusion_model\.|transformer\.|unet\.|pipe\.dit\."
    r"|lora_unet_|lora_transformer_|lycoris_)+"
)
_TEXT_ENCODER = re.compile(
    r"(base_model\.model\.)?(lora_te\d?_|te\d?\.|text_encoder(_\d)?\.|text_encoders\.|cond_stage_model\.)"
)
_PART = re.compile(
    r"(?P<module>.+)\.(?:(?P<down>lora_A|lora_down|lora\.down)|lora_B|lora_up|lora\.up)(?P<default>\.default)?\.weight"
)
_OTHER_KINDS = {
    r"(^|\.)hada_": "part of a LoHa",
    r"(^|\.)lokr_": "part of a LoKr",
    r"(^|\.)lora_mid\.": "the middle of a convolution's LoRA",
    r"(^|\.)lora_magnitude_vector|(^|\.)dora_scale": "part of a DoRA, whose change needs the base model's weights",
    r"\.diff(_b)?$": "a change of whole weights, not of two factors",
    r"(^|\.)(lora_B|lora_up)(\.default)?\.bias$": "a LoRA's change of a bias",
    r"(^|\.)lora_embedding_[AB]": "a LoRA of an embedding",
    r"(^|[._])b?oft_": "part of an OFT",
}


@dataclass(frozen=True)
class Part:
    """module: without prefix. letters: spelled lora_A and lora_B; default: with peft's name for an adapter after it."""

    module: str
    role: Role
    letters: bool = False
    default: bool = False


def parsed(tensor: str) -> Part | None:
    """The part a tensor is, or None for a name that no plain LoRA has."""
    name = tensor[found.end() :] if (found := _PREFIX.match(tensor)) else tensor
    if name.endswith(".alpha"):
        return Part(name.removesuffix(".alpha"), "alpha")
    part = _PART.fullmatch(name)
    if part is None:
        return None
    letters = name.removesuffix(".weight").removesuffix(".default").endswith(("lora_A", "lora_B"))
    return Part(part["module"], "down" if part["down"] else "up", letters, part["default"] is not None)


def of_text_encoder(tensor: str) -> str | None:
    """The module's name with its prefix, where a tensor belongs to a text encoder."""
    if not _TEXT_ENCODER.match(tensor):
        return None
    part = _PART.fullmatch(tensor)
    return part["module"] if part else tensor.rpartition(".")[0]


def other_kind(tensor: str) -> str | None:
    """What a tensor is that belongs to an adapter but is neither factor nor alpha."""
    return next((kind for pattern, kind in _OTHER_KINDS.items() if re.search(pattern, tensor)), None)
