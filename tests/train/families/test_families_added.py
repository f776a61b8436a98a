"""docs/adding-a-family.md as it stands: its family, plugged in by an entry point, is measured and trained."""

import pytest
import torch

from analysis.errors import UsageError
from train import model
from train.adapter import Lora, attach
from train.families import blocks, families, unconditional
from train.job import prepare
from train.objective import StepInput
from train.settings import Settings
from train.step import step_loss
from train.tensor_latents import TensorLatents
from train.training_step import advance


@pytest.fixture
def folder(tmp_path):
    """A tiny AuraFlow in diffusers' layout."""
    from diffusers import AuraFlowTransformer2DModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        AuraFlowTransformer2DModel(
            sample_size=32, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=2,
            attention_head_dim=8, num_attention_heads=4, caption_projection_dim=32, joint_attention_dim=32,
            out_channels=4, pos_embed_max_size=256,
        ).save_pretrained(tmp_path / "aura" / "transformer")  # fmt: skip
    return tmp_path / "aura"


def test_the_pages_family_is_found_and_feeds_its_model(plugged_in, folder):
    found = model.load(str(folder))
    assert found.family.name == "aura_flow"
    assert blocks(found.family, found.transformer) == [
        "joint_transformer_blocks.0", "single_transformer_blocks.0", "single_transformer_blocks.1"
    ]  # fmt: skip
    x, target = torch.randn(2, 2, 4, 8, 12, generator=torch.Generator().manual_seed(0))
    step = StepInput(x, torch.tensor([0.2, 0.9]), target, unconditional(found.family, 2))
    theirs = found.transformer(
        hidden_states=x, timestep=torch.tensor([0.2, 0.9]), encoder_hidden_states=torch.zeros(2, 1, 32)
    ).sample
    parameters = attach(found.transformer, Lora(2, 2, found.family.lora_targets), seed=0)
    loss = step_loss(found.transformer, found.family, step)
    assert torch.allclose(loss, (theirs - target).square().flatten(1).mean(1))
    loss.sum().backward()
    assert len(parameters) == 2 * 4 * 3
    with pytest.raises(UsageError, match="latent of 7 x 12: aura_flow takes sides"):
        step_loss(found.transformer, found.family, StepInput(x[:, :, :7], step.sigma, target[:, :, :7], step.condition))


def test_the_pages_family_trains(plugged_in, folder):
    settings = Settings(model=str(folder), steps=2, rank=2, threads=1)
    latent = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(0))
    latents = TensorLatents(model.load(str(folder)).family, 64, {"a": {64: latent}})
    job = prepare(settings, latents)
    assert [advance(job, step).norm > 0 for step in range(2)] == [True, True]


def test_without_the_package_the_error_lists_families_and_the_page(folder):
    with pytest.raises(UsageError) as error:
        model.load(str(folder))
    said = str(error.value)
    assert said.startswith("model of class AuraFlowTransformer2DModel: no such family; known: ")
    assert [cls for cls in families() if cls not in said] == []
    assert {family.name for family in families().values()} == {"flux", "sd3", "qwenimage", "wan", "z_image", "cosmos"}
    assert said.endswith("docs/adding-a-family.md shows how to add one")
    assert "\n" not in said
