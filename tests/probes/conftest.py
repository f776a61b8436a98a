"""A model of two blocks with a corpus, and a run of it with three checkpoints: small enough to probe in a second."""

import json
import shutil

import numpy as np
import pytest


@pytest.fixture(scope="session")
def small_model(tmp_path_factory):
    """Folder of a Flux of two blocks on 32 x 32 pixels, without an adapter, and its ten pictures."""
    import torch
    from diffusers import FluxTransformer2DModel
    from PIL import Image

    folder = tmp_path_factory.mktemp("small_model")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformer = FluxTransformer2DModel(
            patch_size=1,
            in_channels=48,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            axes_dims_rope=[4, 6, 6],
        )
    transformer.save_pretrained(folder / "transformer")
    (folder / "sigma_probes.json").write_text(json.dumps({"tier": 32, "channels": 3, "scale": 2.0}))
    (folder / "corpus").mkdir()
    generator = np.random.default_rng(0)
    for i in range(10):
        coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((32, 32), Image.Resampling.BICUBIC).save(folder / "corpus" / f"{i}.png")
    return folder


@pytest.fixture(scope="session")
def small_run(small_model, tmp_path_factory):
    """Folder of a run of it: rank 2, checkpoints after 2, 4 and 6 steps, beta2 0.98 and eps 1e-6."""
    from train.determinism import strict_within
    from train.run import run
    from train.settings import Settings

    settings = Settings(
        model=str(small_model), steps=6, rank=2, alpha=4.0, threads=1, checkpoint_every=2, learning_rate=1e-2,
        batch_size=2, beta2=0.98, epsilon=1e-6,
    )  # fmt: skip
    out = tmp_path_factory.mktemp("small_run") / "run"
    with strict_within():
        run(settings, out, resuming=False)
    return out


@pytest.fixture
def own_run(small_run, tmp_path):
    """A copy of that run, to spoil."""
    return shutil.copytree(small_run, tmp_path / "run")
