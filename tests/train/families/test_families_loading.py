"""Loading models: what may be named, and one line for every missing, damaged or foreign piece."""

import json
import logging
import shutil

import pytest
import torch

from analysis.errors import UsageError
from train import model
from train.adapter import Lora, attach, attach_file, save
from train.job import prepare
from train.latents import PixelLatents
from train.settings import Settings
from train.tensor_latents import TensorLatents


@pytest.fixture
def folder(one_family, tmp_path):
    """A Wan model of one's own, to break."""
    return shutil.copytree(one_family("wan").folder, tmp_path / "model", dirs_exist_ok=True)


def refusal(*arguments, of=model.load):
    """The one line that a call is refused with."""
    with pytest.raises(UsageError) as error:
        of(*arguments)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_model_folder_and_its_transformer_folder_are_one_model(folder):
    whole, part = model.load(str(folder)), model.load(str(folder / "transformer"))
    assert whole.digest() == part.digest()
    assert whole.folder == part.folder == folder
    assert (whole.family.name, whole.dtype, whole.pixels) == ("wan", torch.float32, {})
    assert not any(p.requires_grad for p in whole.transformer.parameters())
    assert not whole.transformer.training


def test_half_precision_weights_keep_what_the_model_wants_in_float32(folder):
    found = model.load(str(folder), "bf16").transformer
    assert found.blocks[0].attn1.to_q.weight.dtype == torch.bfloat16
    assert found.scale_shift_table.dtype == torch.float32
    assert "--weights fp8: takes fp32 or bf16" in refusal(str(folder), "fp8")


def test_a_sharded_model_loads_and_names_the_missing_shard(folder):
    whole = model.load(str(folder))
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    whole.transformer.save_pretrained(folder / "transformer", max_shard_size="20KB")
    shards = sorted(folder.glob("transformer/*-of-*.safetensors"))
    assert len(shards) > 1
    again = model.load(str(folder)).transformer.state_dict()
    assert all(torch.equal(value, again[name]) for name, value in whole.transformer.state_dict().items())
    shards[1].unlink()
    assert f"no {shards[1].name} in {folder / 'transformer'}; fetch the model again" in refusal(str(folder))
    shutil.rmtree(folder / "transformer")
    (folder / "transformer").mkdir()
    assert f"no {folder / 'transformer' / 'config.json'}; give mini" in refusal(str(folder))


def test_every_broken_piece_is_named(folder, caplog):
    logging.getLogger("diffusers").addHandler(caplog.handler)
    config, weights = (folder / "transformer" / name for name in ("config.json", "diffusion_pytorch_model.safetensors"))
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "does not load (" in refusal(str(folder))
    weights.unlink()
    assert f"no {weights.name} in {weights.parent}" in refusal(str(folder))
    weights.write_bytes(whole)
    (weights.parent / f"{weights.name}.index.json").write_text("{}")
    assert "holds no weight_map" in refusal(str(folder))
    (weights.parent / f"{weights.name}.index.json").unlink()
    said = json.loads(config.read_text())
    config.write_text(json.dumps(said | {"num_layers": 3}))
    assert "its weights lack" in refusal(str(folder))
    assert "blocks.2." in refusal(str(folder))
    config.write_text(json.dumps(said | {"num_layers": 1}))
    assert "its weights have, unlike its config.json, 27 tensors, such as blocks.1." in refusal(str(folder))
    config.write_text(json.dumps({key: value for key, value in said.items() if key != "_class_name"}))
    assert "names no model class (_class_name)" in refusal(str(folder))
    config.write_text(json.dumps(said)[:-5])
    assert "not readable as JSON" in refusal(str(folder))
    config.write_text(json.dumps(said | {"_class_name": "UNet2DConditionModel"}))
    assert "model of class UNet2DConditionModel: no such family; known: " in refusal(str(folder))
    logging.getLogger("diffusers").removeHandler(caplog.handler)
    assert not caplog.records  # one line, and nothing of diffusers' own


def test_variants_that_are_not_fed_here_are_refused_by_name(one_family):
    for name, changes, message in (
        ("wan", {"in_channels": 8}, "wan from image to video"),
        ("wan", {"patch_size": [2, 2, 2]}, "one frame and square patches"),
        ("qwenimage", {"zero_cond_t": True}, "qwenimage with zero_cond_t"),
        ("z_image", {"all_patch_size": [4]}, "takes one of 2 x 2 x 1"),
        ("cosmos", {"in_channels": 5}, "cosmos with an image or a mask as condition"),
    ):
        assert message in refusal(of=lambda name=name, changes=changes: one_family(name).family(**changes))


def test_a_hub_name_is_looked_up_in_the_hubs_cache(folder, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    repository = tmp_path / "hub" / "models--someone--tiny-wan"
    shutil.copytree(folder / "transformer", repository / "snapshots" / ("0" * 40) / "transformer")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    assert model.load("someone/tiny-wan").digest() == model.load(str(folder)).digest()


def test_names_that_lead_nowhere_say_what_was_tried(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    said = refusal("someone/nothing")
    assert "model someone/nothing: no such folder, and it is neither in the hub's cache nor could" in said
    assert "huggingface.co" in said
    assert "no name on the hub (owner/name) either" in refusal("nothing")
    assert "no name on the hub (" in refusal("a b/c?")


def test_a_lora_for_another_model_is_refused(one_family, tmp_path):
    other, _ = (one_family(name).loaded() for name in ("sd3", "wan"))
    foreign, lora = tmp_path / "foreign.safetensors", Lora(2, 2, other[0].family.lora_targets)
    save(foreign, other[1], lora)
    wan = one_family("wan")
    said = refusal(wan.build(), foreign, of=attach_file)
    assert "a LoRA for another model: the modules of its tensors, such as transformer_blocks.0.attn.to_k" in said
    wider = wan.build(num_attention_heads=4)
    save(foreign, attach(wider, Lora(2, 2, wan.family().lora_targets), seed=0), lora)
    assert "lora_A.weight is [2, 48], this model takes [2, 24]" in refusal(wan.build(), foreign, of=attach_file)


def test_latents_of_another_autoencoder_are_refused(one_family):
    tiny = one_family("wan")
    family, x = tiny.family(), torch.zeros(4, 8, 12)

    def made(latents, conditions=None):
        return TensorLatents(family, 64, latents, conditions)

    assert "latents with 16 channels: this wan takes 4" in refusal({"a": {64: torch.zeros(16, 8, 12)}}, of=made)
    assert "latent of 8 x 11: wan takes sides" in refusal({"a": {64: x, 48: torch.zeros(4, 8, 11)}}, of=made)
    assert "image a: no latent of tier 64; there: 48" in refusal({"a": {48: x}}, of=made)
    assert "conditioning of a: there is none" in refusal({"a": {64: x}}, {}, of=made)
    text = torch.zeros(3, 16)
    assert "conditioning of a: no encoder_hidden_states [tokens, 16]" in refusal(
        {"a": {64: x}}, {"a": {"y": text}}, of=made
    )
    wrong = {"a": {"encoder_hidden_states": torch.zeros(3, 17)}}
    assert "encoder_hidden_states is [3, 17], wan takes [tokens, 16]" in refusal({"a": {64: x}}, wrong, of=made)
    found = made({"a": {64: x}})
    assert "no latent by way of tier 48; there: none" in refusal("a", 48, of=found.repromoted)
    assert "no latent of tier 32; there: 64" in refusal("a", 32, of=found.shape)


def test_tensors_are_latents(one_family):
    tiny = one_family("wan-clip")
    one, same, other = tiny.latents(), tiny.latents(), tiny.latents(seed=1)
    assert one.digest() == same.digest() != other.digest()
    assert one.names == ("image 0", "image 1", "image 2")
    assert one.shape("image 1", 48) == (6, 8)
    assert one.latent("image 1", 64).shape == (4, 2, 8, 12)
    assert one.condition("image 2")["encoder_hidden_states"].shape == (3, 16)
    halves = TensorLatents(tiny.family(), 64, {"a": {64: torch.ones(4, 1, 2, 2, dtype=torch.bfloat16)}})
    assert halves.latent("a", 64).dtype == torch.float32
    assert halves.condition("a")["encoder_hidden_states"].shape == (1, 16)


def test_pictures_are_for_models_of_pixels(one_family, tmp_path):
    settings = Settings(model=str(one_family("wan").folder), steps=1)
    assert "it works on latents of an autoencoder" in refusal(settings, of=prepare)
    assert isinstance(model.latents_of(model.load("mini"), None), PixelLatents)
