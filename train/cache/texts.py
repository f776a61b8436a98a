"""Captions to conditioning, by the encode_prompt of each family's own pipeline, at the length its call would take.

A pipeline's quirks (templates, padding, cutting, cleaning) are thereby its own. Captions go one at a time, so nothing
depends on which others stand beside them. Families of other packages bring theirs through the entry point group
``sigma_probes.captions`` (docs/adding-a-family.md).
"""

import inspect
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families import Family, check_condition
from train.families.qwenimage import MASK
from train.model_files import configuration, one_line

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PARTS = ("text_encoder", "text_encoder_2", "text_encoder_3", "tokenizer", "tokenizer_2", "tokenizer_3")
ANIMA_PARTS = ("text_encoder", "tokenizer", "t5_tokenizer", "text_conditioner")

Condition = dict[str, Tensor]
Encode = Callable[[str], Condition]


def load(family: Family, model: Path, dtype: str, device: str) -> Encode:
    """Caption -> conditioning by the family's names, without a batch axis. UsageError for what ``model`` lacks."""
    known = ENCODERS | {point.name: point.load() for point in entry_points(group="sigma_probes.captions")}
    if family.name not in known:
        raise UsageError(
            f"family {family.name}: no text encoding is known for it; known: {', '.join(known)}; "
            "docs/adding-a-family.md shows how to add one"
        )
    pipeline_class, encoding = known[family.name]
    quiet()
    try:
        pipeline = loaded(pipeline_class, model, DTYPES[dtype], device)
    except (OSError, ValueError, TypeError, RuntimeError, KeyError, ImportError) as error:
        raise UsageError(
            f"model {model}: its text encoders do not load ({one_line(error)}); fetch the whole model again"
        ) from None

    @torch.no_grad()
    def encode(caption: str) -> Condition:
        condition = {name: tensor.cpu() for name, tensor in encoding(pipeline, caption, device).items()}
        check_condition(family, repr(caption[:40]), condition)
        return condition

    return encode


def quiet() -> None:
    """No progress bars of loading, and no word for each caption that is cut, which CLIP's nearly all are."""
    import diffusers.utils.logging
    import transformers.utils.logging

    for library in (diffusers, transformers):
        library.utils.logging.set_verbosity_error()
        library.utils.logging.disable_progress_bar()


def loaded(pipeline_class: str, model: Path, dtype: torch.dtype, device: str) -> Any:
    """The pipeline without transformer and autoencoder; of Anima, the parts its blocks ask for."""
    import diffusers

    if pipeline_class == "Anima":
        return anima_parts(model, dtype, device)
    index = configuration(model / "model_index.json")
    if not index:
        raise UsageError(f"model {model}: no {model / 'model_index.json'}; give the whole model's folder")
    kind = getattr(diffusers, pipeline_class)
    # Besides what is not needed, what this model has none of, such as SD3's third encoder where it was left out.
    parts = [name for name in inspect.signature(kind.__init__).parameters if name != "self"]
    unneeded = ("transformer", "transformer_2", "vae", "image_encoder", "feature_extractor")
    without = {name: None for name in parts if name in unneeded or (name in PARTS and not any(index.get(name) or ()))}
    with warnings.catch_warnings():
        # Its new name, dtype, is not known to every diffusers that is allowed here.
        warnings.filterwarnings("ignore", "`torch_dtype` is deprecated", FutureWarning)
        pipeline = kind.from_pretrained(
            model, torch_dtype=dtype, local_files_only=True, use_safetensors=True, **without
        )
    # SD3 without its third encoder asks the transformer how wide zeros must be.
    vars(pipeline)["transformer"] = SimpleNamespace(
        config=SimpleNamespace(**configuration(model / "transformer" / "config.json")), dtype=dtype
    )
    for name in PARTS[:3]:
        if isinstance(part := getattr(pipeline, name, None), torch.nn.Module):
            part.to(device).eval()
    return pipeline


def anima_parts(model: Path, dtype: torch.dtype, device: str) -> Any:
    """What Anima's modular blocks call their components."""
    import transformers
    from diffusers import AnimaTextConditioner

    for part in ANIMA_PARTS:
        if not (model / part).is_dir():
            raise UsageError(f"model {model}: no {part}/; give the whole model's folder, with {', '.join(ANIMA_PARTS)}")
    encoder: Any = transformers.Qwen3Model.from_pretrained(model / "text_encoder", dtype=dtype, local_files_only=True)
    conditioner: Any = AnimaTextConditioner.from_pretrained(model / "text_conditioner", torch_dtype=dtype)
    return SimpleNamespace(
        text_encoder=encoder.to(device).eval(),
        text_conditioner=conditioner.to(device).eval(),
        tokenizer=transformers.AutoTokenizer.from_pretrained(model / "tokenizer", local_files_only=True),
        t5_tokenizer=transformers.AutoTokenizer.from_pretrained(model / "t5_tokenizer", local_files_only=True),
    )


def longest(pipeline: Any) -> int:
    """Tokens that the pipeline's call cuts at; its encode_prompt alone may have another default."""
    return inspect.signature(type(pipeline).__call__).parameters["max_sequence_length"].default


def flux(pipeline: Any, caption: str, device: str) -> Condition:
    text, pooled, _ = pipeline.encode_prompt(caption, device=device, max_sequence_length=longest(pipeline))
    return {"encoder_hidden_states": text[0], "pooled_projections": pooled[0]}


def sd3(pipeline: Any, caption: str, device: str) -> Condition:
    text, _, pooled, _ = pipeline.encode_prompt(
        caption, None, None, device=device, do_classifier_free_guidance=False, max_sequence_length=longest(pipeline)
    )
    return {"encoder_hidden_states": text[0], "pooled_projections": pooled[0]}


def qwenimage(pipeline: Any, caption: str, device: str) -> Condition:
    text, mask = pipeline.encode_prompt(caption, device=device, max_sequence_length=longest(pipeline))
    return {"encoder_hidden_states": text[0]} | ({} if mask is None else {MASK: mask[0]})


def wan(pipeline: Any, caption: str, device: str) -> Condition:
    text, _ = pipeline.encode_prompt(
        caption, do_classifier_free_guidance=False, device=device, max_sequence_length=longest(pipeline)
    )
    return {"encoder_hidden_states": text[0]}


def z_image(pipeline: Any, caption: str, device: str) -> Condition:
    texts, _ = pipeline.encode_prompt(
        caption, device=device, do_classifier_free_guidance=False, max_sequence_length=longest(pipeline)
    )
    return {"cap_feats": texts[0]}


def cosmos(parts: Any, caption: str, device: str) -> Condition:
    """By the functions of Anima's text blocks."""
    from diffusers.modular_pipelines.anima.before_denoise import AnimaTextConditioningStep
    from diffusers.modular_pipelines.anima.encoders import AnimaTextEncoderStep

    on = torch.device(device)
    text: Any = AnimaTextEncoderStep.encode_prompt(parts, caption, prepare_unconditional_embeds=False, device=on)
    wanted = ("qwen_prompt_embeds", "qwen_attention_mask", "t5_input_ids", "t5_attention_mask")
    conditioned = AnimaTextConditioningStep._condition_prompt_embeds(
        parts,
        **{name: text[name] for name in wanted},
        device=on,
        conditioning_dtype=parts.text_conditioner.dtype,
        output_dtype=parts.text_conditioner.dtype,
    )
    return {"encoder_hidden_states": conditioned[0]}


#: Of each family: the pipeline's class, and caption -> conditioning by it.
ENCODERS: dict[str, tuple[str, Callable[[Any, str, str], Condition]]] = {
    "flux": ("FluxPipeline", flux),
    "sd3": ("StableDiffusion3Pipeline", sd3),
    "qwenimage": ("QwenImagePipeline", qwenimage),
    "wan": ("WanPipeline", wan),
    "z_image": ("ZImagePipeline", z_image),
    "cosmos": ("Anima", cosmos),
}
