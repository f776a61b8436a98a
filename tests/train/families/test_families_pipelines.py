"""Sign and time against diffusers' own pipelines, run from end to end with a model that answers the exact velocity.

Each pipeline takes two steps of its scheduler from x_sigma. What it gives the transformer must be what the family
gives it at that sigma; and where the transformer answers such that the family reads noise - x0, the pipeline must walk
along (1 - sigma) x0 + sigma noise and end at x0. A wrong sign, factor of time, packing or order fails.
"""

from functools import partial

import pytest
import torch
from diffusers import (
    FlowMatchEulerDiscreteScheduler,
    FluxPipeline,
    QwenImagePipeline,
    StableDiffusion3Pipeline,
    WanPipeline,
    ZImagePipeline,
)
from torch import Tensor, nn

from train.families import unconditional
from train.objective import StepInput, interpolate, velocity_target

SIGMAS = [0.9, 0.4]
PIXELS = {"height": 64, "width": 96}
CALL = {**PIXELS, "sigmas": SIGMAS, "num_inference_steps": 2, "output_type": "latent"}


def quiet(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def flux(model, x, text):
    pipeline = quiet(FluxPipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, None, None, model))
    return pipeline(
        prompt_embeds=text["encoder_hidden_states"], pooled_prompt_embeds=text["pooled_projections"],
        latents=FluxPipeline._pack_latents(x, *x.shape), guidance_scale=1.0, **CALL,
    ).images  # fmt: skip


def sd3(model, x, text):
    pipeline = StableDiffusion3Pipeline(model, FlowMatchEulerDiscreteScheduler(), *[None] * 7)
    return quiet(pipeline)(
        prompt_embeds=text["encoder_hidden_states"], pooled_prompt_embeds=text["pooled_projections"], latents=x,
        guidance_scale=1.0, **CALL,
    ).images  # fmt: skip


def qwenimage(model, x, text):
    pipeline = quiet(QwenImagePipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, model))
    embeds = text["encoder_hidden_states"]
    return pipeline(
        prompt_embeds=embeds, prompt_embeds_mask=torch.ones(embeds.shape[:2]).long(), true_cfg_scale=1.0,
        latents=QwenImagePipeline._pack_latents(x, *x.shape), **CALL,
    ).images  # fmt: skip


def wan(model, x, text):
    class Asked(FlowMatchEulerDiscreteScheduler):  # this pipeline asks for a number of steps alone
        def set_timesteps(self, *args, device=None, **kwargs):
            super().set_timesteps(sigmas=SIGMAS, device=device)

    pipeline = quiet(WanPipeline(tokenizer=None, text_encoder=None, vae=None, scheduler=Asked(), transformer=model))
    clip = x if x.ndim == 5 else x[:, :, None]
    return pipeline(
        prompt_embeds=text["encoder_hidden_states"], latents=clip, num_frames=4 * clip.shape[2] - 3,
        guidance_scale=1.0, num_inference_steps=2, output_type="latent", **PIXELS,
    ).frames  # fmt: skip


def z_image(model, x, text):
    pipeline = quiet(ZImagePipeline(FlowMatchEulerDiscreteScheduler(), None, None, None, model))
    return pipeline(prompt_embeds=list(text["cap_feats"]), latents=x, guidance_scale=0.0, **CALL).images


def cosmos(model, x, text):
    from diffusers.guiders import ClassifierFreeGuidance
    from diffusers.modular_pipelines.anima.denoise import AnimaDenoiseStep

    pipeline, scheduler = AnimaDenoiseStep().init_pipeline(), FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(sigmas=SIGMAS)
    guider = ClassifierFreeGuidance(guidance_scale=1.0)
    pipeline.update_components(transformer=model, scheduler=scheduler, guider=guider)
    state = quiet(pipeline)(
        latents=x[:, :, None], timesteps=scheduler.timesteps, num_inference_steps=2, dtype=torch.float32,
        prompt_embeds=text["encoder_hidden_states"], negative_prompt_embeds=None,
        padding_mask=torch.zeros(1, 1, *PIXELS.values()),
    )  # fmt: skip
    return state.get("latents")


PIPELINES = {"flux": flux, "sd3": sd3, "qwenimage": qwenimage, "wan": wan, "z_image": z_image, "cosmos": cosmos}

#: What each transformer must answer, so that its pipeline moves along the velocity v [1, C, H, W].
ANSWERS = {
    "flux": lambda v: FluxPipeline._pack_latents(v, *v.shape),
    "qwenimage": lambda v: QwenImagePipeline._pack_latents(v, *v.shape),
    "sd3": lambda v: v,
    "wan": lambda v: v if v.ndim == 5 else v[:, :, None],
    "z_image": lambda v: [-one[:, None] for one in v],
    "cosmos": lambda v: v[:, :, None],
}


def recording(model: nn.Module, answer: object) -> list[dict[str, object]]:
    """Let ``model`` note the arguments of each call, by name, and answer ``answer``."""
    heard: list[dict[str, object]] = []
    positional = ("x", "t", "cap_feats")  # Z-Image's pipeline names none of them

    def note(module, args, kwargs):
        heard.append(dict(zip(positional, args, strict=False)) | kwargs)

    model.register_forward_pre_hook(note, with_kwargs=True)
    model.register_forward_hook(lambda *_: (answer,))
    return heard


def equal(ours, theirs):
    """Equal to float32's rounding, lists of tensors entry by entry."""
    if isinstance(ours, Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.allclose(ours, theirs, atol=1e-6)
    if isinstance(ours, list) and isinstance(ours[0], Tensor):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return ours == theirs


@pytest.mark.filterwarnings("ignore:.*not created using `ComponentSpec`")
def test_the_pipeline_feeds_the_model_as_we_do_and_follows_the_exact_velocity(tiny_family):
    name = tiny_family.name.partition("-")[0]
    model, family, g = tiny_family.build(), tiny_family.family(), torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 1, family.channels, *tiny_family.frames, 8, 12, generator=g)
    text = {
        key: torch.randn(1, *[3 if n is None else n for n in shape], generator=g)
        for key, shape in family.condition_shapes.items()
    }
    answer, at = ANSWERS[name](velocity_target(x0, noise)), partial(interpolate, x0, noise)
    heard = recording(model, answer)
    end = PIPELINES[name](model, at(torch.tensor([SIGMAS[0]])), text)

    assert torch.equal(family.velocity((answer,), x0.shape), velocity_target(x0, noise))
    assert torch.allclose(end, ANSWERS[name](x0) if name in ("flux", "qwenimage") else x0.reshape(end.shape), atol=1e-5)
    assert len(heard) == len(SIGMAS)
    for sigma, theirs in zip(SIGMAS, heard, strict=True):
        level = torch.tensor([sigma])
        ours = family.arguments(StepInput(at(level), level, velocity_target(x0, noise), text))
        for key, value in ours.items():
            assert equal(value, theirs[key]), (key, sigma)
        unsaid = {key for key, value in theirs.items() if key not in ours and value not in (None, {})}
        assert unsaid <= {"padding_mask"}, unsaid  # all zero, and given where the model wants it


def test_each_wrong_convention_is_seen(one_family):
    """The comparison itself can fail: time in thousands, time backwards, bfloat16 time."""
    step = StepInput(
        torch.zeros(1, 4, 8, 12), torch.tensor([0.9]), torch.zeros(1), unconditional(one_family("sd3").family(), 1)
    )
    right = one_family("sd3").family().arguments(step)["timestep"]
    assert equal(right, torch.tensor([900.0]))
    for wrong in (right / 1000, 1000 - right, right.bfloat16()):
        assert not equal(wrong, torch.tensor([900.0]))


def test_cosmos_is_told_that_nothing_is_padding(one_family, monkeypatch):
    """diffusers resizes the mask with torchvision; a stand-in of nearest resizing does here."""
    from types import SimpleNamespace

    from diffusers.models.transformers import transformer_cosmos

    def resize(mask, size, interpolation):
        return torch.nn.functional.interpolate(mask, size=size, mode=interpolation)

    stand_in = SimpleNamespace(
        functional=SimpleNamespace(resize=resize), InterpolationMode=SimpleNamespace(NEAREST="nearest")
    )
    monkeypatch.setattr(transformer_cosmos, "transforms", stand_in, raising=False)
    tiny = one_family("cosmos")
    model, family = tiny.build(concat_padding_mask=True), tiny.family(concat_padding_mask=True)
    x = torch.randn(2, 4, 8, 12, generator=torch.Generator().manual_seed(0))
    step = StepInput(x, torch.tensor([0.3, 0.8]), x, unconditional(family, 2))
    monkeypatch.setattr("train.families.cosmos.find_spec", lambda name: None)
    with pytest.raises(Exception, match="needs torchvision"):
        family.arguments(step)
    monkeypatch.setattr("train.families.cosmos.find_spec", lambda name: object())
    with torch.no_grad():
        ours = family.velocity(model(**family.arguments(step)), x.shape)
        theirs = model(
            hidden_states=x[:, :, None], timestep=step.sigma, padding_mask=torch.zeros(1, 1, 64, 96), **step.condition
        ).sample[:, :, 0]
    assert torch.equal(ours, theirs)


def test_wans_time_for_each_token_is_one_time_where_no_frame_is_given(one_family):
    """What Wan 2.2's 5B pipeline passes, [B, tokens] of one value, is our [B]."""
    tiny = one_family("wan")
    model, family = tiny.build(), tiny.family()
    x = torch.randn(1, 4, 2, 8, 12, generator=torch.Generator().manual_seed(0))
    arguments = family.arguments(StepInput(x, torch.tensor([0.6]), x, unconditional(family, 1)))
    with torch.no_grad():
        one = model(**arguments)[0]
        each = model(**arguments | {"timestep": arguments["timestep"].expand(1, 48)})[0]
    assert torch.allclose(one, each, atol=1e-6)
