"""Every family as a tiny random model of diffusers, and how a person would call it without this project."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch

FLUX = {
    "patch_size": 1, "in_channels": 16, "num_layers": 1, "num_single_layers": 2, "attention_head_dim": 16,
    "num_attention_heads": 2, "joint_attention_dim": 32, "pooled_projection_dim": 32, "axes_dims_rope": [4, 4, 8],
}  # fmt: skip
WAN = {
    "patch_size": [1, 2, 2], "num_attention_heads": 2, "attention_head_dim": 12, "in_channels": 4, "out_channels": 4,
    "text_dim": 16, "freq_dim": 256, "ffn_dim": 32, "num_layers": 2, "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 32,
}  # fmt: skip
TINY = {
    "flux": ("FluxTransformer2DModel", FLUX),
    "flux-guidance": ("FluxTransformer2DModel", FLUX | {"guidance_embeds": True}),
    "sd3": ("SD3Transformer2DModel", {
        "sample_size": 32, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8,
        "num_attention_heads": 4, "caption_projection_dim": 32, "joint_attention_dim": 32, "pooled_projection_dim": 64,
        "out_channels": 4, "pos_embed_max_size": 24, "dual_attention_layers": [0], "qk_norm": "rms_norm",
    }),
    "qwenimage": ("QwenImageTransformer2DModel", {
        "patch_size": 2, "in_channels": 16, "out_channels": 4, "num_layers": 2, "attention_head_dim": 16,
        "num_attention_heads": 2, "joint_attention_dim": 16, "guidance_embeds": False, "axes_dims_rope": [8, 4, 4],
    }),
    "wan": ("WanTransformer3DModel", WAN),
    "wan-clip": ("WanTransformer3DModel", WAN),
    "z_image": ("ZImageTransformer2DModel", {
        "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 4, "dim": 16, "n_layers": 1,
        "n_refiner_layers": 1, "n_heads": 1, "n_kv_heads": 1, "qk_norm": True, "cap_feat_dim": 16, "rope_theta": 256.0,
        "t_scale": 1000.0, "axes_dims": [8, 4, 4], "axes_lens": [256, 32, 32],
    }),
    "cosmos": ("CosmosTransformer3DModel", {
        "in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 12, "num_layers": 2,
        "mlp_ratio": 2, "text_embed_dim": 16, "adaln_lora_dim": 4, "max_size": [4, 32, 32], "patch_size": [1, 2, 2],
        "rope_scale": [2.0, 1.0, 1.0], "concat_padding_mask": False, "extra_pos_embed_type": "learnable",
    }),
}  # fmt: skip
NATIVE, LOW = 64, 48  # tiers, in pixels
SIDES = {NATIVE: (8, 12), LOW: (6, 8)}
TOKENS = 3  # of text


@dataclass(frozen=True)
class Tiny:
    """One case. ``name`` is the family's, with what is special about it after a dash."""

    name: str
    root: Path

    @property
    def transformer_class(self):
        return TINY[self.name][0]

    @property
    def frames(self):
        return (2,) if self.name == "wan-clip" else ()

    def build(self, **changes):
        """A fresh model with the same random weights each time."""
        import diffusers

        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = getattr(diffusers, self.transformer_class)(**TINY[self.name][1] | changes)
            for parameter in model.parameters():  # what starts at zero would hide what depends on it
                if not parameter.any():
                    torch.nn.init.normal_(parameter, std=0.02)
        return model.eval()

    @cached_property
    def folder(self):
        """The model in diffusers' layout."""
        self.build().save_pretrained(self.root / "transformer")
        return self.root

    def family(self, **changes):
        from train.families import family_class

        return family_class(self.transformer_class)(self.build(**changes).config)

    def loaded(self, weights="fp32"):
        """The model by ``train.model``, with a LoRA of rank 2 that is not zero, and the LoRA's parameters."""
        from train import model
        from train.adapter import Lora, attach

        found = model.load(str(self.folder), weights)
        parameters = attach(found.transformer, Lora(2, 2, found.family.lora_targets), seed=0)
        generator = torch.Generator().manual_seed(1)
        for name, parameter in parameters.items():
            if ".lora_B." in name:
                parameter.data = 0.1 * torch.randn(parameter.shape, generator=generator)
        return found, parameters

    def latents(self, images=3, seed=0):
        """Random latents of ``images`` at both tiers, with a text each."""
        from train.tensor_latents import TensorLatents

        family, generator = self.family(), torch.Generator().manual_seed(seed)
        names = [f"image {i}" for i in range(images)]

        def at(*tiers):
            return {
                name: {t: torch.randn(family.channels, *self.frames, *SIDES[t], generator=generator) for t in tiers}
                for name in names
            }

        texts = {
            name: {
                key: torch.randn([TOKENS if n is None else n for n in shape], generator=generator)
                for key, shape in family.condition_shapes.items()
            }
            for name in names
        }
        return TensorLatents(family, NATIVE, at(NATIVE, LOW), texts)


@pytest.fixture(scope="session", params=list(TINY))
def tiny_family(request, tmp_path_factory):
    """Each family in turn."""
    return Tiny(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def one_family(tmp_path_factory):
    """A family by name."""
    return lambda name: Tiny(name, tmp_path_factory.mktemp(name))


def flux(model, x, sigma, text):
    from diffusers import FluxPipeline

    batch, channels, height, width = x.shape
    tokens = FluxPipeline._pack_latents(x, batch, channels, height, width)
    answer = model(
        hidden_states=tokens,
        timestep=sigma,
        guidance=torch.ones(batch) if model.config.guidance_embeds else None,
        img_ids=FluxPipeline._prepare_latent_image_ids(batch, height // 2, width // 2, "cpu", torch.float32),
        txt_ids=torch.zeros(text["encoder_hidden_states"].shape[1], 3),
        **text,
    ).sample
    return FluxPipeline._unpack_latents(answer, 8 * height, 8 * width, 8)


def qwenimage(model, x, sigma, text):
    from diffusers import QwenImagePipeline

    batch, channels, height, width = x.shape
    answer = model(
        hidden_states=QwenImagePipeline._pack_latents(x, batch, channels, height, width),
        timestep=sigma,
        img_shapes=[[(1, height // 2, width // 2)]] * batch,
        **text,
    ).sample
    return QwenImagePipeline._unpack_latents(answer, 8 * height, 8 * width, 8)[:, :, 0]


def sd3(model, x, sigma, text):
    return model(hidden_states=x, timestep=sigma * 1000, **text).sample


def wan(model, x, sigma, text):
    clip = x if x.ndim == 5 else x[:, :, None]
    return model(hidden_states=clip, timestep=sigma * 1000, **text).sample.reshape(x.shape)


def z_image(model, x, sigma, text):
    answers = model(x=[one[:, None] for one in x], t=1 - sigma, cap_feats=list(text["cap_feats"])).sample
    return -torch.stack([one[:, 0] for one in answers])


def cosmos(model, x, sigma, text):
    return model(hidden_states=x[:, :, None], timestep=sigma, **text).sample[:, :, 0]


BY_HAND = {"flux": flux, "sd3": sd3, "qwenimage": qwenimage, "wan": wan, "z_image": z_image, "cosmos": cosmos}


@pytest.fixture
def by_hand(tiny_family):
    """(model, x [B, ...], sigma [B], text) -> velocity, by diffusers alone."""
    return BY_HAND[tiny_family.name.partition("-")[0]]
