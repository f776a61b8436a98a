"""Files by the writers that people use, read without torch: the change of weights is the one peft computes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import FluxPipeline, FluxTransformer2DModel
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict

from analysis.lora.file import LoraFile, read
from analysis.lora.pairing import paired
from train import adapter, kohya
from train.families.flux import Flux

RANK, ALPHA = 4, 6.0
TARGETS = r"(single_)?transformer_blocks\.\d+\.(attn\.(to_[qkv]|to_out\.0)|proj_mlp|ff\.net\.2)"


def flux() -> FluxTransformer2DModel:
    torch.manual_seed(0)
    return FluxTransformer2DModel(
        patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
    )  # fmt: skip


def randomise(model: torch.nn.Module) -> None:
    """Every factor from a generator of its own module's name, the same in every wrapping."""
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            seed = sum(map(ord, adapter.plain_name(name).removeprefix("base_model.model.")))
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed)) / 8


def config(**more: object) -> LoraConfig:
    return LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, **more)  # pyright: ignore


def deltas(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """peft's own change of every module's weights, [out, in]."""
    return {
        name.removeprefix("base_model.model."): module.get_delta_weight("default").detach().double().numpy()
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight")
    }


def patterned(**more: object) -> LoraConfig:
    return config(rank_pattern={"proj_mlp": 2}, alpha_pattern={r"\d+.attn.to_q": 9.0}, **more)


@pytest.mark.parametrize("settings", [config, patterned, lambda: patterned(use_rslora=True)])
@pytest.mark.parametrize("form", ["pipeline", "model", "peft"])
def test_each_writer_is_read(tmp_path: Path, form: str, settings: Callable[[], LoraConfig]) -> None:
    model = flux()
    if form == "peft":
        wrapped = get_peft_model(model, settings())
        randomise(wrapped)
        wrapped.save_pretrained(tmp_path)
        expected = deltas(wrapped)
    else:
        model.add_adapter(settings())
        randomise(model)
        expected = deltas(model)
        if form == "model":
            model.save_lora_adapter(tmp_path)
        else:
            FluxPipeline.save_lora_weights(
                tmp_path,
                transformer_lora_layers=get_peft_model_state_dict(model),
                transformer_lora_adapter_metadata=model.peft_config["default"].to_dict(),
            )
    found = read(tmp_path)
    assert found.rules == ("adapter_config.json" if form == "peft" else "header metadata",)
    assert_same(found, expected)
    assert found.warnings == ()


def assert_same(found: LoraFile, expected: dict[str, np.ndarray]) -> None:
    assert set(found.modules) == set(expected)
    for name, module in found.modules.items():
        ours = module.scale * module.up.astype(np.float64) @ module.down.astype(np.float64)
        assert np.linalg.norm(ours - expected[name]) <= 1e-6 * np.linalg.norm(expected[name]), name


def test_this_trainers_two_files_are_one_change_of_weights(tmp_path: Path) -> None:
    model = flux()
    lora = adapter.Lora(RANK, ALPHA, TARGETS)
    parameters = adapter.attach(model, lora, seed=0)
    randomise(model)
    adapter.save(tmp_path / "a.safetensors", parameters, lora)
    kohya.save(tmp_path / "k.safetensors", parameters, lora, Flux(model.config, channels=4), model)
    files = [read(tmp_path / "a.safetensors"), read(tmp_path / "k.safetensors")]
    assert_same(files[0], deltas(model))
    both = paired(files)
    assert [module.name for module in both.modules] == list(files[0].modules)
    assert both.alone == ((), ())
    for module in both.modules:
        square = float((deltas(model)[module.name] ** 2).sum())
        assert module.inner_products() == pytest.approx(np.full((2, 2), square), rel=1e-6)
