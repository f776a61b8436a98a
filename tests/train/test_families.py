"""The Flux family against the model itself: tokens, sign, time, positions."""

import pytest
import torch
from diffusers import FluxTransformer2DModel
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from train.families import block_of, blocks, family_class, grid, unconditional
from train.families.flux import Flux
from train.objective import StepInput, interpolate, velocity_target

TINY = {
    "patch_size": 1,
    "in_channels": 16,
    "num_layers": 1,
    "num_single_layers": 2,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": [4, 4, 8],
}


def tiny(**changes):
    torch.manual_seed(0)
    return FluxTransformer2DModel(**{**TINY, **changes}).eval()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_unpacking_undoes_packing(channels, rows, columns, patch):
    config = {
        "in_channels": channels * patch**2,
        "joint_attention_dim": 1,
        "pooled_projection_dim": 1,
        "guidance_embeds": False,
    }
    family = Flux(config, channels)
    assert family.patch == patch
    latent = (
        torch.arange(2 * channels * rows * columns * patch**2)
        .float()
        .reshape(2, channels, rows * patch, columns * patch)
    )
    tokens = family.pack(latent)
    assert tokens.shape == (2, rows * columns, channels * patch**2)
    assert torch.equal(family.unpack(tokens, rows * patch, columns * patch), latent)


def test_packing_is_that_of_the_pipeline():
    from diffusers import FluxPipeline

    latent = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0))
    ours = Flux(tiny().config, channels=4)
    theirs = FluxPipeline._pack_latents(latent, 2, 4, 6, 8)
    assert torch.equal(ours.pack(latent), theirs)
    ids = FluxPipeline._prepare_latent_image_ids(2, 3, 4, "cpu", torch.float32)
    assert torch.equal(ours.positions(6, 8), ids)


def test_a_step_of_the_pipelines_scheduler_with_the_exact_velocity_lands_on_the_next_level():
    from diffusers import FlowMatchEulerDiscreteScheduler

    g = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 1, 4, 8, 8, generator=g)
    scheduler = FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(sigmas=[0.9, 0.4])
    here, there = (scheduler.sigmas[i : i + 1] for i in range(2))
    stepped = scheduler.step(
        velocity_target(x0, noise), scheduler.timesteps[0], interpolate(x0, noise, here)
    ).prev_sample
    assert torch.allclose(stepped, interpolate(x0, noise, there), atol=1e-5)


def test_the_timestep_is_sigma_and_the_model_hears_it():
    model, family = tiny(), Flux(tiny().config, channels=4)
    heard = []
    model.time_text_embed.register_forward_pre_hook(lambda module, args: heard.append(args[0]))
    condition = {"encoder_hidden_states": torch.zeros(1, 1, 32), "pooled_projections": torch.zeros(1, 32)}
    given_step = StepInput(torch.zeros(1, 4, 8, 8), torch.tensor([0.7]), torch.zeros(1, 4, 8, 8), condition)
    answer = family.velocity(model(**family.arguments(given_step)), given_step.x_sigma.shape)
    assert answer.shape == (1, 4, 8, 8)
    assert heard[0].tolist() == pytest.approx([700.0])


def test_guidance_is_given_where_the_model_wants_it():
    for embeds in (False, True):
        model = tiny(guidance_embeds=embeds)
        family = Flux(model.config, channels=4)
        condition = unconditional(family, 2)
        arguments = family.arguments(
            StepInput(torch.zeros(2, 4, 4, 8), torch.full((2,), 0.5), torch.zeros(2, 4, 4, 8), condition)
        )
        assert ("guidance" in arguments) == embeds
        model(**arguments)


def test_blocks_come_in_depth_order_and_parameters_find_theirs():
    model, family = tiny(), Flux(tiny().config, channels=4)
    assert blocks(family, model) == [
        "transformer_blocks.0",
        "single_transformer_blocks.0",
        "single_transformer_blocks.1",
    ]
    assert (
        block_of(family, "single_transformer_blocks.1.attn.to_q.lora_A.default.weight") == "single_transformer_blocks.1"
    )
    assert block_of(family, "x_embedder.lora_A.default.weight") == "other"
    assert grid(family, 8, 12) == (4, 6)


def test_wrong_latents_and_unknown_models_are_one_line():
    with pytest.raises(UsageError, match="latents with 3 channels"):
        Flux(tiny().config, channels=3)
    with pytest.raises(UsageError, match=r"UNet2DModel: no such family; known: cosmos .*, flux .*adding-a-family\.md"):
        family_class("UNet2DModel")


def test_a_stretch_holds_inside_its_context_only():
    from train.rope import NATIVE, Rope

    model, family = tiny(), Flux(tiny().config, channels=4)
    own = model.pos_embed
    with family.stretched(model, NATIVE):
        assert model.pos_embed is own
    context = family.stretched(model, Rope((1.5, 1.5), (4, 4)))
    context.__enter__()
    assert model.pos_embed is not own
    assert not context.__exit__(ValueError, ValueError("inside"), None)
    assert model.pos_embed is own
