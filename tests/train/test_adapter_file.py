"""LoRA files by other tools, attached to a model: the change of weights is the file's, and diffusers reads the same."""

import json

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel
from peft import LoraConfig
from safetensors.torch import load_file, save_file

from analysis.entry import exit_code
from analysis.errors import UsageError
from train import adapter, adapter_file, kohya
from train.families.flux import Flux

RANK, ALPHA = 4, 6.0
TARGETS = r"(single_)?transformer_blocks\.\d+\.(attn\.(to_[qkv]|to_out\.0)|proj_mlp|ff\.net\.2)"


def flux():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=1, num_single_layers=2, attention_head_dim=16,
            num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=[4, 4, 8],
        )  # fmt: skip


def deltas(model):
    """peft's own change of every module's weights, [out, in]."""
    return {
        name: module.get_delta_weight(next(iter(module.lora_A))).detach().double()
        for name, module in model.named_modules()
        if hasattr(module, "get_delta_weight")
    }


def drawn(model):
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) / 8


@pytest.fixture
def written(tmp_path):
    """A model with an adapter, and the file of every spelling that holds it, by tool."""
    model, lora = flux(), adapter.Lora(RANK, ALPHA, TARGETS)
    parameters = adapter.attach(model, lora, seed=0)
    drawn(model)
    files = {tool: tmp_path / f"{tool}.safetensors" for tool in ("diffusers", "kohya", "comfy", "bare", "diffsynth")}
    adapter.save(files["diffusers"], parameters, lora)
    kohya.save(files["kohya"], parameters, lora, Flux(model.config, channels=4), model)
    ours = {adapter.plain_name(name): p.detach().clone() for name, p in parameters.items()}
    dotted = {}
    for name, tensor in load_file(files["kohya"]).items():  # ComfyUI's: the same modules, with dots
        module, _, rest = name.removeprefix("lora_unet_").partition(".")
        for stem in ("double_blocks", "single_blocks"):
            if module.startswith(stem):
                number, _, inner = module.removeprefix(stem + "_").partition("_")
                inner = inner.replace("img_attn_", "img_attn.").replace("img_mlp_2", "img_mlp.2")
                dotted[f"diffusion_model.{stem}.{number}.{inner}.{rest}"] = tensor
    save_file(dotted, files["comfy"])
    scaled = {name: p * (ALPHA / RANK) if ".lora_B." in name else p for name, p in ours.items()}
    save_file({f"transformer.{name}": p for name, p in scaled.items()}, files["bare"])  # ai-toolkit's: alpha = rank
    save_file({f"pipe.dit.{n.replace('.weight', '.default.weight')}": p for n, p in scaled.items()}, files["diffsynth"])
    return model, files


@pytest.mark.parametrize("tool", ["diffusers", "kohya", "comfy", "bare", "diffsynth"])
def test_each_spelling_is_the_same_change_of_weights_and_diffusers_reads_ours(written, tool, tmp_path, capsys):
    model, files = written
    again = flux()
    parameters, lora = adapter.attach_file(again, files[tool])
    expected = deltas(model)
    found = deltas(again)
    assert set(found) == set(expected)
    for name, delta in expected.items():
        assert (found[name] - delta).norm() <= 1e-6 * delta.norm(), name
    assert lora.rank == RANK
    assert lora.alpha == (ALPHA if tool in ("diffusers", "kohya", "comfy") else RANK)
    adapter.save(tmp_path / "out.safetensors", parameters, lora)
    theirs = flux()
    theirs.load_lora_adapter(tmp_path, weight_name="out.safetensors", prefix="transformer")
    read = deltas(theirs)
    for name, delta in expected.items():
        assert (read[name] - delta).norm() <= 1e-6 * delta.norm(), name
    assert capsys.readouterr().err == ""


def test_a_file_of_this_trainer_comes_back_to_the_bit(written):
    model, files = written
    parameters, _ = adapter.attach_file(flux(), files["diffusers"])
    own = dict(model.named_parameters())
    assert all(torch.equal(p, own[name]) for name, p in parameters.items())


def test_ranks_and_scales_by_module_are_kept_and_told(tmp_path, capsys):
    model = flux()
    config = LoraConfig(
        r=RANK, lora_alpha=ALPHA, target_modules=TARGETS, rank_pattern={"proj_mlp": 2}, alpha_pattern={"to_q": 9.0}
    )
    model.add_adapter(config)
    drawn(model)
    model.save_lora_adapter(tmp_path, weight_name="p.safetensors")
    again = flux()
    parameters, lora = adapter.attach_file(again, tmp_path / "p.safetensors")
    for name, delta in deltas(model).items():
        assert (deltas(again)[name] - delta).norm() <= 1e-6 * delta.norm(), name
    assert (lora.rank, lora.alpha) == (4, 6.0)
    told = capsys.readouterr().err
    assert "modules have a rank below 4; zeros are added" in told
    assert "modules have another scale than 1.5; it goes into up" in told
    # The zeros change no gradient and stay zero under AdamW.
    narrow = "single_transformer_blocks.0.proj_mlp"
    down, up = (parameters[f"{narrow}.lora_{part}.default.weight"] for part in "AB")
    assert not down[2:].any()
    assert not up[:, 2:].any()
    layer = again.get_submodule(narrow)
    layer(torch.randn(3, down.shape[1], generator=torch.Generator().manual_seed(0))).square().sum().backward()
    assert not down.grad[2:].any()
    assert not up.grad[:, 2:].any()
    assert down.grad[:2].any()
    torch.optim.AdamW([down, up], lr=1.0, weight_decay=0.1).step()
    assert not down[2:].any()
    assert not up[:, 2:].any()
    assert adapter_file.settings(tmp_path / "p.safetensors") is None


def test_a_fused_module_that_was_trained_as_one_gives_each_part_its_rows(tmp_path):
    generator = torch.Generator().manual_seed(0)
    down, up = torch.randn(RANK, 32, generator=generator), torch.randn(96, RANK, generator=generator)
    name = "diffusion_model.double_blocks.0.img_attn.qkv"
    tensors = {f"{name}.lora_A.weight": down.bfloat16(), f"{name}.lora_B.weight": up.to(torch.float8_e4m3fn)}
    save_file({**tensors, f"{name}.alpha": torch.tensor(2.0)}, tmp_path / "f.safetensors")
    model = flux()
    _, lora = adapter.attach_file(model, tmp_path / "f.safetensors")
    assert (lora.rank, lora.scale) == (RANK, 0.5)
    whole = 0.5 * up.to(torch.float8_e4m3fn).double() @ down.bfloat16().double()
    for i, part in enumerate(("to_q", "to_k", "to_v")):
        found = deltas(model)[f"transformer_blocks.0.attn.{part}"]
        assert torch.allclose(found, whole[32 * i : 32 * (i + 1)], rtol=1e-6, atol=1e-7)


def test_a_text_encoders_part_is_left_out_and_told(written, tmp_path, capsys):
    _, files = written
    more = {"lora_te1_text_model.lora_down.weight": torch.zeros(2, 8)}
    save_file({**load_file(files["kohya"]), **more}, tmp_path / "t.safetensors")
    adapter.attach_file(flux(), tmp_path / "t.safetensors")
    assert "note: " in (told := capsys.readouterr().err)
    assert "1 modules of text encoders are left out" in told


def lora(**modules):
    """A file's tensors: modules by name with [rank, in, out]."""
    return {
        f"transformer.{name}.{part}.weight": torch.ones(shape)
        for name, (rank, width, height) in modules.items()
        for part, shape in (("lora_A", (rank, width)), ("lora_B", (height, rank)))
    }


Q, K = "transformer_blocks.0.attn.to_q", "transformer_blocks.0.attn.to_k"


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        (lora(**{Q: (2, 32, 32), K: (4, 32, 32)}), r"modules of ranks \[2, 4\] and no alpha"),
        (lora(**{"blocks.0.x": (2, 32, 32)}), "a LoRA for another model: .* such as blocks.0.x"),
        (lora(**{Q: (2, 32, 32), "blocks.0.x": (2, 32, 32)}), "1 modules without a partner in this model, such as"),
        (lora(**{Q: (2, 16, 32)}), r"to_q.lora_A.weight is \[2, 16\], this model takes \[2, 32\]"),
        (lora(**{Q: (2, 32, 16)}), r"to_q.lora_B.weight is \[16, 2\], this model takes \[32, 2\]"),
        ({**lora(**{Q: (2, 32, 32)}), **{n.replace(Q, "double_blocks.0.img_attn.qkv").replace("transformer.", ""): t
          for n, t in lora(**{Q: (2, 32, 96)}).items()}}, "to_q.* there"),
        ({"x.hada_w1_a": torch.ones(2, 2)}, "part of a LoHa"),
        ({"transformer.x.lokr_w1": torch.ones(2, 2)}, "part of a LoKr"),
        ({"transformer.proj_out.weight": torch.ones(2, 2)}, "no LoRA among its 1 tensors"),
    ],
)  # fmt: skip
def test_what_cannot_be_attached_whole_is_one_line(tensors, says, tmp_path):
    save_file(tensors, tmp_path / "a.safetensors")
    with pytest.raises(UsageError, match=says) as caught:
        adapter.attach_file(flux(), tmp_path / "a.safetensors")
    assert "\n" not in str(caught.value)


def test_wrong_rank_metadata_is_told_and_the_tensors_rank_is_used(tmp_path, capsys):
    about = {"lora_adapter_metadata": json.dumps({"transformer.r": 8, "transformer.lora_alpha": 8})}
    save_file(lora(**{Q: (2, 32, 32)}), tmp_path / "a.safetensors", about)
    _, found = adapter.attach_file(flux(), tmp_path / "a.safetensors")
    assert (found.rank, found.scale) == (2, 4.0)
    assert "gives transformer_blocks.0.attn.to_q rank 8, its tensors have 2" in capsys.readouterr().err


def test_peft_settings_beside_the_file_give_its_scale_and_count_in_its_hash(tmp_path):
    from train.model import hash_of

    tensors = {f"base_model.model.{n.removeprefix('transformer.')}": t for n, t in lora(**{Q: (2, 32, 32)}).items()}
    path, sidecar = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    save_file(tensors, path)
    hashes = []
    for alpha in (3, 5):
        sidecar.write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": alpha}))
        assert adapter.attach_file(flux(), path)[1].scale == alpha / 2
        hashes.append(hash_of(adapter_file.files_of(path)))
    assert hashes[0] != hashes[1]


def test_a_run_goes_on_from_a_file_of_sd_scripts(written, tmp_path, tiny, determinism_put_back, capsys):
    """The command's own way: rank and alpha are the file's, and its module names those of the model."""
    from train.cli import app
    from train.model import load

    loaded = load(str(tiny))
    given = adapter.Lora(3, 1.5, r".*attn\.to_[qkv]")
    parameters = adapter.attach(loaded.transformer, given, seed=1)
    drawn(loaded.transformer)
    kohya.save(tmp_path / "k.safetensors", parameters, given, loaded.family, loaded.transformer)
    command = ["--model", str(tiny), "--adapter", str(tmp_path / "k.safetensors"), "--steps", "1", "--threads", "1"]
    refused = exit_code(app, [*command, "--rank", "9", "--out", str(tmp_path / "no")], name="train")
    assert refused == 2
    assert exit_code(app, [*command, "--out", str(tmp_path / "run")], name="train") == 0, capsys.readouterr().err
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (settings["rank"], settings["alpha"]) == (3, 1.5)
    start = load_file(tmp_path / "run" / "start.safetensors")
    for name, parameter in parameters.items():
        assert np.array_equal(start["transformer." + adapter.plain_name(name)], parameter.detach()), name
