"""Whole pipelines of random weights as people have them on disk, small; their tokenisers are made here."""

import string
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

SIDE = 64  # of the native tier, in pixels


def clip_tokenizer():
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    words = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[], model_max_length=16)


def t5_tokenizer():
    from transformers import T5TokenizerFast

    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0)]
    return T5TokenizerFast(vocab=[*special, *((letter, -3.0) for letter in string.printable[:94])], extra_ids=0)


def qwen_tokenizer(chat_template=None):
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    words = [*sorted(ByteLevel.alphabet()), "<|endoftext|>"]
    tokenizer = Qwen2Tokenizer(vocab={word: i for i, word in enumerate(words)}, merges=[])
    tokenizer.chat_template = chat_template
    return tokenizer


def t5_encoder(kind="T5"):
    import transformers

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=128, d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2, relative_attention_num_buckets=4
    )
    return getattr(transformers, f"{kind}EncoderModel")(config)


def clip_encoder(projection=False):
    import transformers

    config = transformers.CLIPTextConfig(
        vocab_size=520, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=16, projection_dim=32, eos_token_id=513, bos_token_id=512,
    )  # fmt: skip
    return (transformers.CLIPTextModelWithProjection if projection else transformers.CLIPTextModel)(config)


def qwen3_encoder():
    import transformers

    config = transformers.Qwen3Config(
        vocab_size=300, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=8,
    )  # fmt: skip
    return transformers.Qwen3Model(config)


def kl(channels=4, **more):
    from diffusers import AutoencoderKL

    down, up = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    return AutoencoderKL(
        down_block_types=down, up_block_types=up, block_out_channels=(8, 8), layers_per_block=1, norm_num_groups=2,
        latent_channels=channels, scaling_factor=0.36, shift_factor=0.12, **more,
    )  # fmt: skip


def by_channel(kind, **more):
    """An autoencoder of clips: Qwen-Image's or Wan's, four times smaller along a side."""
    import diffusers

    return getattr(diffusers, kind)(
        base_dim=4, z_dim=4, dim_mult=[1, 1, 1], num_res_blocks=1, temperal_downsample=[False, True],
        latents_mean=[-0.4, 0.1, 0.2, 0.0], latents_std=[2.8, 1.4, 2.3, 0.9], **more,
    )  # fmt: skip


FLUX = {
    "patch_size": 1, "in_channels": 16, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": [4, 4, 8],
}  # fmt: skip


def flux(scheduler):
    from diffusers import FluxPipeline, FluxTransformer2DModel

    return FluxPipeline(
        scheduler=scheduler, vae=kl(), text_encoder=clip_encoder(), tokenizer=clip_tokenizer(),
        text_encoder_2=t5_encoder(), tokenizer_2=t5_tokenizer(), transformer=FluxTransformer2DModel(**FLUX),
    )  # fmt: skip


def sd3(scheduler):
    from diffusers import SD3Transformer2DModel, StableDiffusion3Pipeline

    transformer = SD3Transformer2DModel(
        sample_size=32, patch_size=2, in_channels=4, num_layers=1, attention_head_dim=8, num_attention_heads=4,
        caption_projection_dim=32, joint_attention_dim=64, pooled_projection_dim=64, out_channels=4,
        pos_embed_max_size=48,
    )  # fmt: skip
    return StableDiffusion3Pipeline(
        transformer=transformer, scheduler=scheduler, vae=kl(), text_encoder=clip_encoder(projection=True),
        tokenizer=clip_tokenizer(), text_encoder_2=clip_encoder(projection=True), tokenizer_2=clip_tokenizer(),
        text_encoder_3=None, tokenizer_3=None,
    )  # fmt: skip


def qwenimage(scheduler):
    import transformers
    from diffusers import QwenImagePipeline, QwenImageTransformer2DModel

    config = transformers.Qwen2_5_VLConfig(
        text_config={
            "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
            "num_key_value_heads": 2, "vocab_size": 300,
            "rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
        },
        vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 16},
    )  # fmt: skip
    transformer = QwenImageTransformer2DModel(
        patch_size=2, in_channels=16, out_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=16, guidance_embeds=False, axes_dims_rope=[8, 4, 4],
    )  # fmt: skip
    return QwenImagePipeline(
        scheduler=scheduler, vae=by_channel("AutoencoderKLQwenImage"), tokenizer=qwen_tokenizer(),
        text_encoder=transformers.Qwen2_5_VLForConditionalGeneration(config), transformer=transformer,
    )  # fmt: skip


def wan(scheduler):
    from diffusers import WanPipeline, WanTransformer3DModel

    transformer = WanTransformer3DModel(
        patch_size=[1, 2, 2], num_attention_heads=2, attention_head_dim=12, in_channels=4, out_channels=4, text_dim=32,
        freq_dim=256, ffn_dim=32, num_layers=2, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
        rope_max_seq_len=32,
    )  # fmt: skip
    return WanPipeline(
        tokenizer=t5_tokenizer(), text_encoder=t5_encoder("UMT5"), scheduler=scheduler, transformer=transformer,
        vae=by_channel("AutoencoderKLWan", scale_factor_spatial=4, scale_factor_temporal=2),
    )  # fmt: skip


def z_image(scheduler):
    from diffusers import ZImagePipeline, ZImageTransformer2DModel

    transformer = ZImageTransformer2DModel(
        all_patch_size=[2], all_f_patch_size=[1], in_channels=4, dim=16, n_layers=1, n_refiner_layers=1, n_heads=1,
        n_kv_heads=1, qk_norm=True, cap_feat_dim=16, rope_theta=256.0, t_scale=1000.0, axes_dims=[8, 4, 4],
        axes_lens=[256, 32, 32],
    )  # fmt: skip
    template = "{% for message in messages %}<u>{{ message['content'] }}</u>{% endfor %}"
    return ZImagePipeline(
        scheduler=scheduler, vae=kl(), text_encoder=qwen3_encoder(), tokenizer=qwen_tokenizer(template),
        transformer=transformer,
    )  # fmt: skip


def aura_flow(scheduler):
    from diffusers import AuraFlowPipeline, AuraFlowTransformer2DModel

    transformer = AuraFlowTransformer2DModel(
        sample_size=32, patch_size=2, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1, attention_head_dim=8,
        num_attention_heads=4, caption_projection_dim=32, joint_attention_dim=32, out_channels=4,
        pos_embed_max_size=1024,
    )  # fmt: skip
    return AuraFlowPipeline(
        tokenizer=t5_tokenizer(), text_encoder=t5_encoder("UMT5"), vae=kl(), transformer=transformer,
        scheduler=scheduler,
    )  # fmt: skip


def save_anima(folder):
    """Anima's parts; diffusers has a modular pipeline for it alone."""
    from diffusers import AnimaTextConditioner, CosmosTransformer3DModel

    CosmosTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=2, mlp_ratio=2,
        text_embed_dim=16, adaln_lora_dim=4, max_size=[4, 64, 64], patch_size=[1, 2, 2], rope_scale=[2.0, 1.0, 1.0],
        concat_padding_mask=False, extra_pos_embed_type=None,
    ).save_pretrained(folder / "transformer")  # fmt: skip
    AnimaTextConditioner(
        source_dim=16, target_dim=16, model_dim=16, num_layers=1, num_attention_heads=2, target_vocab_size=128,
        min_sequence_length=8,
    ).save_pretrained(folder / "text_conditioner")  # fmt: skip
    by_channel("AutoencoderKLQwenImage").save_pretrained(folder / "vae")
    qwen3_encoder().save_pretrained(folder / "text_encoder")
    qwen_tokenizer().save_pretrained(folder / "tokenizer")
    t5_tokenizer().save_pretrained(folder / "t5_tokenizer")


PIPELINES = {"flux": flux, "sd3": sd3, "qwenimage": qwenimage, "wan": wan, "z_image": z_image, "aura_flow": aura_flow}


def save_model(name, folder):
    """A random model of the family ``name``, whole, in ``folder``."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "cosmos":
            save_anima(folder)
        else:
            PIPELINES[name](FlowMatchEulerDiscreteScheduler()).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A family's name -> the folder of a whole random model, made once."""
    made: dict[str, Path] = {}

    def get(name):
        if name not in made:
            made[name] = save_model(name, tmp_path_factory.mktemp(name))
        return made[name]

    return get


def photograph(size, seed):
    """Smooth random pixels, uint8 [H, W, 3]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((size[1], size[0]), Image.Resampling.BICUBIC))


@pytest.fixture
def request_of(model_folder, photographs):
    """A family's name, and what of the command line is to be another -> what train cache is asked for."""
    from train.cache.build import Request

    def make(family="flux", **changes):
        base = {"model": str(model_folder(family)), "images": photographs, "tiers": "48,64", "threads": 1}
        return Request(**(base | {"text_dtype": "fp32", "device": "cpu"} | changes))

    return make


@pytest.fixture
def photographs(tmp_path):
    """Four photographs, square, wide and tall, one of them turned and two with a caption."""
    folder = tmp_path / "photographs"
    folder.mkdir()
    for i, size in enumerate([(90, 90), (70, 140), (150, 80), (80, 120)]):
        picture = Image.fromarray(photograph(size, i))
        exif = picture.getexif()
        if i == 3:
            exif[0x0112] = 6
        picture.save(folder / f"{'abcd'[i]}.png", exif=exif)
    (folder / "a.txt").write_text("a red bird\n")
    (folder / "c.txt").write_text("two boats on a long river under a very wide sky")
    return folder
