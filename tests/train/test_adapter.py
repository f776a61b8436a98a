import json

import pytest
import torch
from diffusers import FluxTransformer2DModel
from safetensors import safe_open
from safetensors.torch import save_file

from analysis.errors import UsageError
from train.adapter import Lora, attach, attach_file, plain_name, read, save
from train.families.flux import Flux

TINY = {
    "patch_size": 1,
    "in_channels": 16,
    "num_layers": 1,
    "num_single_layers": 1,
    "attention_head_dim": 16,
    "num_attention_heads": 2,
    "joint_attention_dim": 32,
    "pooled_projection_dim": 32,
    "axes_dims_rope": [4, 4, 8],
}
LORA = Lora(4, 8.0, Flux.lora_targets)


def tiny():
    torch.manual_seed(0)
    return FluxTransformer2DModel(**TINY)


def test_up_is_zero_and_down_is_peft_s_distribution():
    parameters = attach(tiny(), LORA, seed=0)
    ups = [p for name, p in parameters.items() if ".lora_B." in name]
    downs = [p for name, p in parameters.items() if ".lora_A." in name]
    assert len(ups) == len(downs) > 0
    assert all(not p.any() for p in ups)
    for p in downs:
        bound = p.shape[1] ** -0.5
        assert float(p.detach().abs().max()) <= bound
        assert float(p.detach().std()) == pytest.approx(bound / 3**0.5, rel=0.25)


def test_another_target_module_changes_no_other_modules_start():
    few = attach(tiny(), Lora(4, 4.0, r".*attn\.to_q"), seed=3)
    more = attach(tiny(), Lora(4, 4.0, r".*attn\.to_[qk]"), seed=3)
    assert set(few) < set(more)
    assert all(torch.equal(few[name], more[name]) for name in few)
    other = attach(tiny(), Lora(4, 4.0, r".*attn\.to_q"), seed=4)
    assert not any(torch.equal(few[name], other[name]) for name in few if ".lora_A." in name)


def test_only_the_adapter_is_trainable_and_global_randomness_is_left_alone():
    model = tiny()
    torch.manual_seed(1)
    expected = torch.randn(3)
    torch.manual_seed(1)
    parameters = attach(model, LORA, seed=0)
    assert torch.equal(torch.randn(3), expected)
    assert {name for name, p in model.named_parameters() if p.requires_grad} == set(parameters)


def test_a_saved_adapter_comes_back_and_diffusers_reads_it_at_the_same_scale(tmp_path):
    model = tiny()
    parameters = attach(model, LORA, seed=0)
    g = torch.Generator().manual_seed(0)
    for p in parameters.values():
        p.data = torch.randn(p.shape, generator=g) / 10
    save(tmp_path / "a.safetensors", parameters, LORA)
    again, lora = attach_file(tiny(), tmp_path / "a.safetensors")
    assert (lora.rank, lora.alpha, lora.scale) == (4, 8.0, 2.0)
    assert all(torch.equal(again[name], p) for name, p in parameters.items())

    theirs = tiny()
    # Given a bare file and no weight_name, this diffusers method reads the weights but not their metadata.
    theirs.load_lora_adapter(tmp_path, weight_name="a.safetensors", prefix="transformer")
    q = theirs.transformer_blocks[0].attn.to_q
    name = "transformer_blocks.0.attn.to_q.lora_A.default.weight"
    assert torch.equal(next(iter(q.lora_A.values())).weight, parameters[name])
    assert next(iter(q.scaling.values())) == 2.0


def test_the_file_is_diffusers_form(tmp_path):
    save(tmp_path / "a.safetensors", attach(tiny(), LORA, seed=0), LORA)
    with safe_open(tmp_path / "a.safetensors", framework="pt") as file:
        assert all(name.startswith("transformer.") and ".default." not in name for name in file.keys())  # noqa: SIM118
        assert json.loads(file.metadata()["lora_adapter_metadata"])["transformer.lora_alpha"] == 8.0


def factors(rank):
    return ("lora_A", (rank, 8)), ("lora_B", (8, rank))


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (None, "no whole safetensors file"),
        ({"x": torch.zeros(2)}, "no LoRA among its 1 tensors, such as x"),
        (
            {f"transformer.m{r}.{n}.weight": torch.zeros(s) for r in (2, 4) for n, s in factors(r)},
            r"ranks \[2, 4\] and no",
        ),
        ({f"transformer.m.{n}.weight": torch.zeros(s) for n, s in factors(2)}, "none in this model"),
    ],
)
def test_bad_files_are_one_line(tmp_path, tensors, says):
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"nonsense") if tensors is None else save_file(tensors, path)
    with pytest.raises(UsageError, match=says):
        attach_file(tiny(), path)


def test_a_missing_factor_and_a_wrong_shape_are_named(tmp_path):
    path = tmp_path / "a.safetensors"
    save(path, attach(tiny(), LORA, seed=0), LORA)
    tensors, _ = read(path)
    name = plain_name("transformer_blocks.0.attn.to_q.lora_B.default.weight")
    whole = {f"transformer.{key}": value for key, value in tensors.items()}
    save_file({key: value for key, value in whole.items() if not key.endswith(name)}, path)
    with pytest.raises(UsageError, match="has no up beside it"):
        attach_file(tiny(), path)
    save_file({**whole, f"transformer.{name}": torch.zeros(5, 4)}, path)
    with pytest.raises(UsageError, match=r"to_q.lora_B.weight is \[5, 4\]"):
        attach_file(tiny(), path)
