"""Caches as sd-scripts and musubi-tuner write them, made here by their table, and every way they can be wrong."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from analysis.errors import UsageError
from train.cache import opening
from train.cache.model import described

SIDES = {64: (32, 32), 48: (24, 24)}  # of latents of the flux model here, whose autoencoder halves
NAMES = ("a", "a_1", "b_0064x0064")


def latent(name, side, channels=4):
    seed = sum(map(ord, name)) + side[0]
    return torch.randn(channels, *side, generator=torch.Generator().manual_seed(seed))


def text(name, *shape):
    return latent(f"text of {name}", shape, 1)[0]


def write_flux(folder, names=NAMES):
    """sd-scripts' cache for Flux, with lower siblings."""
    for name in names:
        arrays = {f"latents_{h}x{w}": latent(name, (h, w)).numpy() for h, w in [SIDES[64]]}
        arrays |= {f"demoted_{h}x{w}": latent(name, (h, w)).numpy() for h, w in [SIDES[48]]}
        more = {"original_size_32x32": np.array([70, 66]), "crop_ltrb_32x32": np.array([0, 0, 64, 64])}
        np.savez(folder / f"{name}_0070x0066_flux.npz", **arrays, **more)
        np.savez(
            folder / f"{name}_flux_te.npz", t5_out=text(name, 9, 32).numpy(), l_pooled=text(name, 1, 32)[0].numpy(),
            txt_ids=np.zeros((9, 3)), t5_attn_mask=np.ones(9), apply_t5_attn_mask=False,
        )  # fmt: skip


def opened(family, model_folder, folder):
    model = described(str(model_folder(family)))
    return opening.opened(folder, model.family, model.folder)


def test_sd_scripts_latents_of_flux_by_exact_stem(tmp_path, model_folder):
    write_flux(tmp_path)
    found = opened("flux", model_folder, tmp_path)
    assert found.names == NAMES
    assert found.tier == 64
    for name in NAMES:
        for tier in (64, 48):
            assert found.shape(name, tier) == SIDES[tier]
            assert torch.equal(found.latent(name, tier), latent(name, SIDES[tier]))
        condition = found.condition(name)
        assert torch.equal(condition["encoder_hidden_states"], text(name, 9, 32))
        assert torch.equal(condition["pooled_projections"], text(name, 1, 32)[0])
    with pytest.raises(UsageError, match="no latent by way of tier 48; there: none; sd-scripts wrote"):
        found.repromoted("a", 48)
    before = found.digest()
    np.savez(tmp_path / "a_0070x0066_flux.npz", latents_32x32=latent("b", (32, 32)).numpy())
    assert opened("flux", model_folder, tmp_path).digest() != before


def test_such_a_cache_is_probed_and_trained_on(tmp_path, model_folder, determinism_put_back):
    from analysis.entry import exit_code
    from probes.cli import app as probes
    from train.cli import app as train

    cache = tmp_path / "cache"
    cache.mkdir()
    write_flux(cache)
    common = ["--model", str(model_folder("flux")), "--latents", str(cache), "--threads", "1", "--device", "cpu"]
    run = ["--arm", "demote:48", "--steps", "1", "--rank", "2", "--out", str(tmp_path / "run")]
    assert exit_code(train, [*common, *run], name="train") == 0
    probe = ["--sigma-grid", "0.5", "--images", "2", "--draws", "1", "--arm", "demote:3/4", "--out"]
    assert exit_code(probes, ["grad", *common, *probe, str(tmp_path / "p.zarr")], name="probes") == 0


def test_sd3s_latents_are_scaled_and_its_texts_joined(tmp_path, model_folder):
    z = latent("a", (32, 32))
    np.savez(tmp_path / "a_0064x0064_sd3.npz", latents_32x32=z.numpy())
    lg, t5, pooled = text("lg", 7, 40), text("t5", 9, 64), text("pooled", 1, 64)[0]
    np.savez(tmp_path / "a_sd3_te.npz", lg_out=lg.numpy(), t5_out=t5.numpy(), lg_pooled=pooled.numpy())
    found = opened("sd3", model_folder, tmp_path)
    assert torch.allclose(found.latent("a", 64), (z - 0.12) * 0.36)
    expected = torch.zeros(16, 64)
    expected[:7, :40], expected[7:] = lg, t5
    assert torch.equal(found.condition("a")["encoder_hidden_states"], expected)
    assert torch.equal(found.condition("a")["pooled_projections"], pooled)


def anima_latent(folder):
    np.savez(folder / "a_0064x0064_anima.npz", latents_16x16=latent("a", (16, 16)).numpy()[:, None])


def test_animas_latents_lose_their_frame_and_its_texts_are_conditioned(tmp_path, model_folder):
    from diffusers import AnimaTextConditioner

    anima_latent(tmp_path)
    save_file({"crossattn_emb_v0": text("a", 12, 16)}, tmp_path / "a_anima_te.safetensors")
    found = opened("cosmos", model_folder, tmp_path)
    assert torch.equal(found.latent("a", 64), latent("a", (16, 16)))
    assert torch.equal(found.condition("a")["encoder_hidden_states"], text("a", 12, 16))

    (tmp_path / "a_anima_te.safetensors").unlink()
    states, ids = text("s", 10, 16), np.arange(11, dtype=np.int32)
    mask, target = np.array([1] * 6 + [0] * 4), np.array([1] * 7 + [0] * 4, np.int32)
    np.savez(
        tmp_path / "a_anima_te.npz", prompt_embeds=states.numpy(), attn_mask=mask, t5_input_ids=ids, t5_attn_mask=target
    )
    conditioner = AnimaTextConditioner.from_pretrained(model_folder("cosmos") / "text_conditioner")
    with torch.no_grad():  # without any padding, as Anima's pipeline does
        expected = conditioner(states[None, :6], torch.tensor(ids[None, :7]))[0]
    found = opened("cosmos", model_folder, tmp_path).condition("a")["encoder_hidden_states"]
    assert found.shape == (11, 16)
    assert torch.allclose(found[:7], expected[:7], atol=1e-5)
    assert not found[7:].any()


MUSUBI = {
    "wan": ("wan", "latents_1x16x16_float32", "varlen_t5_bf16", 32),
    "qwenimage": ("qi", "latents_1x16x16_float32", "varlen_vl_embed_bf16", 16),
    "z_image": ("zi", "latents_1x32x32_float32", "varlen_llm_embed_bf16", 16),
}


def write_musubi(folder, family, names=NAMES, **changes):
    arch, key, text_key, width = MUSUBI[family]
    side = (32, 32) if family == "z_image" else (16, 16)
    for name in names:
        z = latent(name, side) if family == "z_image" else latent(name, side)[:, None]
        save_file({changes.get("key", key): z}, folder / f"{name}_0070x0066_{changes.get('arch', arch)}.safetensors")
        embed = text(name, 6, width).bfloat16()
        save_file({text_key: embed}, folder / f"{name}_{changes.get('arch', arch)}_te.safetensors")


@pytest.mark.parametrize("family", list(MUSUBI))
def test_musubis_latents_and_texts_by_exact_stem(family, tmp_path, model_folder):
    write_musubi(tmp_path, family)
    found = opened(family, model_folder, tmp_path)
    assert (found.names, found.tier) == (NAMES, 64)
    side = found.shape("a", 64)
    for name in NAMES:
        raw = latent(name, side)
        assert torch.allclose(found.latent(name, 64), (raw - 0.12) * 0.36 if family == "z_image" else raw)
        (embed,) = found.condition(name).values()
        width = MUSUBI[family][3]
        assert torch.equal(embed[:6], text(name, 6, width).bfloat16())
        assert embed.shape == ((512, width) if family == "wan" else (6, width))
        assert not embed[6:].any()


def test_a_clip_keeps_its_frames(tmp_path, model_folder):
    clip = torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    save_file({"latents_3x16x16_float32": clip}, tmp_path / "a_00000-009_0064x0064_wan.safetensors")
    save_file({"varlen_t5_float32": text("a", 5, 32)}, tmp_path / "a_wan_te.safetensors")
    found = opened("wan", model_folder, tmp_path)
    assert torch.equal(found.latent("a_00000-009", 64), clip)


def test_tiers_are_read_off_areas(tmp_path, model_folder):
    for name, sides in {"wide": [(22, 46), (20, 40)], "tall": [(44, 22), (38, 20)]}.items():
        keys = ("latents", "demoted")
        arrays = {f"{key}_{h}x{w}": latent(name, (h, w)).numpy() for key, (h, w) in zip(keys, sides, strict=True)}
        np.savez(tmp_path / f"{name}_0100x0100_flux.npz", **arrays)
        np.savez(tmp_path / f"{name}_flux_te.npz", t5_out=np.zeros((2, 32)), l_pooled=np.zeros(32))
    found = opened("flux", model_folder, tmp_path)
    assert found.tier == 64
    assert found.shape("wide", 56) == (20, 40)
    assert found.shape("tall", 56) == (38, 20)


def rename(old, new):
    return lambda folder: (folder / old).rename(folder / new)


def npz(name, **arrays):
    return lambda folder: np.savez(folder / name, **arrays)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (npz("a_0070x0066_flux.npz", latents_32x31=np.zeros((4, 32, 32))), r"\[4, 32, 32\], its name says 32 x 31"),
        (npz("a_0070x0066_flux.npz", latents_32x32=np.zeros((16, 32, 32))), "has 16 channels, this flux takes 4"),
        (npz("a_0070x0066_flux.npz", latents_32x32=np.zeros((32, 32))), "a latent has 3 axes"),
        (npz("a_0070x0066_flux.npz", latents=np.zeros((4, 32, 32))), "no array latents_HxW among latents"),
        (npz("a_0070x0066_flux.npz", latents_31x32=np.zeros((4, 31, 32))), "sides that its patch of 2 divides"),
        (npz("a_0070x0066_flux.npz", latents_32x32=np.zeros((4, 32, 32)), demoted_32x30=np.zeros((4, 32, 30)),
             demoted_30x32=np.zeros((4, 30, 32))), "are both of tier 6"),
        (npz("a_0099x0099_flux.npz", latents_32x32=np.zeros((4, 32, 32))), "are both latents of a; keep one"),
        (npz("c_0099x0099_sdxl.npz", latents_32x32=np.zeros((4, 32, 32))), "latents for flux and sdxl"),
        (lambda folder: (folder / "a_flux_te.npz").unlink(), "no a_flux_te.npz for the latents of a"),
        (rename("a_1_flux_te.npz", "a_2_flux_te.npz"), "no a_1_flux_te.npz"),
        (npz("a_flux_te.npz", t5_out=np.zeros((2, 32))), "no l_pooled among t5_out"),
        (npz("a_flux_te.npz", t5_out=np.zeros((2, 31)), l_pooled=np.zeros(32)), r"encoder_hidden_states is \[2, 31\]"),
        (npz("a_flux_te.npz", t5_out=np.zeros((2, 32)), l_pooled=np.zeros(32), apply_t5_attn_mask=True), "masked text"),
        (lambda folder: (folder / "a_0070x0066_flux.npz").write_bytes(b"PK nonsense"), "is no whole npz file"),
    ],
)  # fmt: skip
def test_bad_caches_of_sd_scripts_are_one_line(change, says, tmp_path, model_folder):
    write_flux(tmp_path)
    change(tmp_path)
    with pytest.raises(UsageError, match=says) as caught:
        opened("flux", model_folder, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"key": "latents_1x16x15_float32"}, r"has shape \[4, 1, 16, 16\], its name says 16 x 15"),
        ({"key": "latents_2x16x16_float32"}, "its name says 2 x 16 x 16"),
        ({"key": "latents_control_1x16x16_float32"}, "a picture as a condition"),
        ({"key": "latent"}, "0 tensors latents_FxHxW among latent"),
        ({"arch": "wan"}, r"for wan \(wan\), the model is qwenimage"),
        ({"arch": "hv"}, "musubi-tuner for hv; taken are those for wan, qi, zi"),
    ],
)
def test_bad_caches_of_musubi_are_one_line(changes, says, tmp_path, model_folder):
    write_musubi(tmp_path, "qwenimage", **changes)
    with pytest.raises(UsageError, match=says):
        opened("qwenimage", model_folder, tmp_path)


def test_a_text_that_is_missing_or_another(tmp_path, model_folder):
    write_musubi(tmp_path, "qwenimage")
    save_file({"varlen_t5_bf16": torch.zeros(2, 16)}, tmp_path / "a_qi_te.safetensors")
    with pytest.raises(UsageError, match=r"no varlen_vl_embed_\* \[tokens, width\] among varlen_t5_bf16"):
        opened("qwenimage", model_folder, tmp_path)
    (tmp_path / "a_qi_te.safetensors").unlink()
    with pytest.raises(UsageError, match=r"no a_qi_te\.safetensors for the latents of a"):
        opened("qwenimage", model_folder, tmp_path)


def test_pickled_arrays_are_never_loaded(tmp_path, model_folder):
    write_flux(tmp_path)
    np.savez(tmp_path / "a_flux_te.npz", t5_out=np.zeros((2, 32)), l_pooled=np.array([object()] * 32))
    with pytest.raises(UsageError, match="l_pooled is of object, taken are floats"):
        opened("flux", model_folder, tmp_path)
