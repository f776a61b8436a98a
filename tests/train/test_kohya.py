"""Kohya's spelling of a Flux adapter is the same change of weights, to diffusers and by the format's definition."""

import pytest
import torch
from diffusers import FluxTransformer2DModel
from diffusers.loaders import FluxLoraLoaderMixin
from safetensors.torch import load_file

from analysis.errors import UsageError
from train import kohya
from train.adapter import Lora, attach, plain_name
from train.families.flux import Flux

RANK, ALPHA = 4, 6.0
TEXT_SIDE = (
    r"|(single_)?transformer_blocks\.\d+\."
    r"(attn\.(add_[qkv]_proj|to_add_out)|ff_context\.net\.(0\.proj|2)|norm1?(_context)?\.linear)"
)


@pytest.fixture(scope="module")
def full_width():
    """A Flux of the real widths, which diffusers' reader takes for granted, without weights; and its family."""
    with torch.device("meta"):
        model = FluxTransformer2DModel(num_layers=2, num_single_layers=2)
    return model, Flux(model.config, channels=16)


def adapter(model, targets):
    """Random LoRA tensors of every module of ``model`` that ``targets`` matches, on the CPU."""
    import re

    g = torch.Generator().manual_seed(0)
    found = {}
    for name, module in model.named_modules():
        if re.fullmatch(targets, name):
            found[f"{name}.lora_A.default.weight"] = torch.randn(RANK, module.in_features, generator=g)
            found[f"{name}.lora_B.default.weight"] = torch.randn(module.out_features, RANK, generator=g)
    return found


def effect(up, down, scale):
    """(scale up down) x for a fixed x: [out], float64."""
    x = torch.randn(down.shape[1], generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return scale * (up.double() @ (down.double() @ x))


def close(a, b):
    return float((a - b).norm()) <= 1e-6 * float(b.norm())


@pytest.mark.parametrize("targets", [Flux.lora_targets, Flux.lora_targets + TEXT_SIDE, r".*attn\.to_[qv]"])
def test_diffusers_reads_the_same_change_of_weights(full_width, tmp_path, targets):
    model, family = full_width
    lora, parameters = Lora(RANK, ALPHA, targets), adapter(model, targets)
    kohya.save(tmp_path / "k.safetensors", parameters, lora, family, model)
    theirs = FluxLoraLoaderMixin.lora_state_dict(load_file(tmp_path / "k.safetensors"))
    for name in parameters:
        if "lora_A" in name:
            up = name.replace("lora_A", "lora_B")
            ours = effect(parameters[up], parameters[name], ALPHA / RANK)
            key = f"transformer.{plain_name(name)}"
            found = effect(theirs.pop(key.replace("lora_A", "lora_B")), theirs.pop(key), 1.0)
            assert close(found, ours), name
    # What has no LoRA of its own shares a fused module with one that has, and must be zero.
    assert all(not tensor.any() for tensor in theirs.values())


def test_a_fused_module_is_the_parts_one_below_the_other(full_width):
    """By the format's own definition, alpha / rank up down, without diffusers."""
    model, family = full_width
    parameters = adapter(model, Flux.lora_targets)
    tensors = kohya.converted(parameters, Lora(RANK, ALPHA, Flux.lora_targets), family, model)
    fused = "lora_unet_single_blocks_1_linear1"
    up, down, alpha = (tensors[f"{fused}.{part}"] for part in ("lora_up.weight", "lora_down.weight", "alpha"))
    parts = [f"single_transformer_blocks.1.{part}" for part in ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp")]
    expected = torch.cat(
        [
            effect(
                parameters[f"{part}.lora_B.default.weight"], parameters[f"{part}.lora_A.default.weight"], ALPHA / RANK
            )
            for part in parts
        ]
    )
    assert close(effect(up, down, float(alpha) / down.shape[0]), expected)
    assert {name.rpartition(".lora_")[0] or name.removesuffix(".alpha") for name in tensors} == {
        f"lora_unet_{kind}_blocks_{i}_{module}"
        for kind, modules in (
            ("double", ("img_attn_qkv", "img_attn_proj", "img_mlp_0", "img_mlp_2")),
            ("single", ("linear1", "linear2")),
        )
        for i in range(2)
        for module in modules
    }


def test_a_module_without_a_name_there_is_refused_before_training(job_of):
    with pytest.raises(UsageError, match="--format kohya: x_embedder has no name there"):
        job_of(format="kohya", targets="x_embedder")


def test_a_run_writes_it_beside_the_other(settings_of, tmp_path):
    from train.run import run

    run(settings_of(steps=1, format="kohya"), tmp_path / "run", resuming=False)
    both = (
        load_file(tmp_path / "run" / "adapter-kohya.safetensors"),
        load_file(tmp_path / "run" / "adapter.safetensors"),
    )
    name = "lora_unet_double_blocks_0_img_attn_proj.lora_up.weight"
    assert both[0][name].equal(both[1]["transformer.transformer_blocks.0.attn.to_out.0.lora_B.weight"])


def test_names_stay_where_a_family_has_no_others():
    class Plain(Flux):
        kohya_modules = ()

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=0, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    )  # fmt: skip
    lora = Lora(RANK, ALPHA, r".*attn\.to_q")
    parameters = attach(model, lora, seed=0)
    tensors = kohya.converted(parameters, lora, Plain(model.config, channels=4), model)
    base = "lora_unet_transformer_blocks_0_attn_to_q"
    assert set(tensors) == {f"{base}.lora_down.weight", f"{base}.lora_up.weight", f"{base}.alpha"}
    assert float(tensors[f"{base}.alpha"]) == ALPHA
