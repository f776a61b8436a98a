"""Conditioning against what each pipeline itself gives its transformer when it is called with the caption."""

import pytest
import torch

from analysis.errors import UsageError
from train.cache import texts
from train.cache.model import described

CAPTIONS = ["a red bird", "", "two boats &amp; a   long river under a very wide sky, " * 30]
CALLED = {
    "flux": ("FluxPipeline", {"guidance_scale": 1.0}),
    "sd3": ("StableDiffusion3Pipeline", {"guidance_scale": 1.0}),
    "qwenimage": ("QwenImagePipeline", {"true_cfg_scale": 1.0}),
    "wan": ("WanPipeline", {"guidance_scale": 1.0, "num_frames": 1}),
    "z_image": ("ZImagePipeline", {"guidance_scale": 0.0}),
}
LEFT_OUT = ("text_encoder_3", "tokenizer_3", "image_encoder", "feature_extractor")


class Heard(Exception):
    """The transformer was reached."""


def heard_by_the_transformer(family, folder, caption):
    """What the pipeline's own call gives its transformer."""
    import diffusers

    kind, options = CALLED[family]
    without = dict.fromkeys(LEFT_OUT) if family == "sd3" else {}
    pipeline = getattr(diffusers, kind).from_pretrained(folder, **without)
    pipeline.set_progress_bar_config(disable=True)
    given = {}

    def stop(module, args, kwargs):
        given.update(dict(zip(("x", "t", "cap_feats"), args, strict=False)) | kwargs)
        raise Heard

    pipeline.transformer.register_forward_pre_hook(stop, with_kwargs=True)
    with pytest.raises(Heard):
        pipeline(caption, height=64, width=64, num_inference_steps=1, **options)
    return given


@pytest.mark.parametrize("family", list(CALLED))
@pytest.mark.parametrize("caption", CAPTIONS, ids=["short", "empty", "too long"])
def test_a_caption_becomes_what_the_pipeline_feeds(family, caption, model_folder):
    folder = model_folder(family)
    found = described(str(folder)).family
    condition = texts.load(found, folder, "fp32", "cpu")(caption)
    given = heard_by_the_transformer(family, folder, caption)
    assert set(condition) == set(found.condition_shapes)
    for name, tensor in condition.items():
        assert torch.equal(tensor, given[name][0]), name
    assert given.get("encoder_hidden_states_mask") is None


@pytest.mark.filterwarnings("ignore:.*not created using `ComponentSpec`")
@pytest.mark.parametrize("caption", CAPTIONS, ids=["short", "empty", "too long"])
def test_animas_captions_are_those_of_its_blocks(caption, model_folder):
    from diffusers.guiders import ClassifierFreeGuidance
    from diffusers.modular_pipelines.anima.before_denoise import AnimaTextConditioningStep
    from diffusers.modular_pipelines.anima.encoders import AnimaTextEncoderStep

    folder = model_folder("cosmos")
    parts = texts.anima_parts(folder, torch.float32, "cpu")
    encoding, conditioning = AnimaTextEncoderStep().init_pipeline(), AnimaTextConditioningStep().init_pipeline()
    encoding.update_components(
        text_encoder=parts.text_encoder, tokenizer=parts.tokenizer, t5_tokenizer=parts.t5_tokenizer,
        guider=ClassifierFreeGuidance(guidance_scale=1.0),
    )  # fmt: skip
    conditioning.update_components(text_conditioner=parts.text_conditioner, transformer=parts.text_conditioner)
    state = encoding(prompt=caption)
    wanted = ("qwen_prompt_embeds", "qwen_attention_mask", "t5_input_ids", "t5_attention_mask")
    theirs = conditioning(**{name: state.get(name) for name in wanted}).get("prompt_embeds")
    ours = texts.load(described(str(folder)).family, folder, "fp32", "cpu")(caption)
    assert torch.equal(ours["encoder_hidden_states"], theirs[0])


def test_half_precision_is_the_encoders(model_folder):
    folder = model_folder("flux")
    condition = texts.load(described(str(folder)).family, folder, "bf16", "cpu")("a bird")
    assert {tensor.dtype for tensor in condition.values()} == {torch.bfloat16}


def test_a_model_without_text_encoders_is_one_line(model_folder, tmp_path):
    family = described(str(model_folder("flux"))).family
    with pytest.raises(UsageError, match=r"no .*model_index\.json"):
        texts.load(family, tmp_path, "fp32", "cpu")
    (tmp_path / "model_index.json").write_text((model_folder("flux") / "model_index.json").read_text())
    with pytest.raises(UsageError, match="its text encoders do not load"):
        texts.load(family, tmp_path, "fp32", "cpu")
    with pytest.raises(UsageError, match="no text_encoder/"):
        texts.load(described(str(model_folder("cosmos"))).family, tmp_path, "fp32", "cpu")
