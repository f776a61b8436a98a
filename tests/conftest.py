"""What every test runs under: few threads, no network, no screen, fixed randomness.

Nothing heavy is imported here: the settings must be in place before torch and numpy start, and tests of `analysis`
must not pay for torch. No module of this project either: the shape checks wrap a module as it is first imported.
"""

import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

# Derandomised, so that a red test is red again; no deadline, because machines differ and are shared.
hypothesis.settings.register_profile("sigma-probes", derandomize=True, deadline=None, max_examples=50)
hypothesis.settings.load_profile("sigma-probes")

# What a script starts in the background ignores Ctrl-C, and hands that on to the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_flux(tmp_path_factory):
    """(side in pixels, pictures) -> folder of a Flux of two blocks that works on pixels, and of its corpus."""
    import json

    import numpy as np
    import torch
    from diffusers import FluxTransformer2DModel
    from PIL import Image

    def make(side: int, pictures: int):
        folder = tmp_path_factory.mktemp("tiny_flux")
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
        (folder / "sigma_probes.json").write_text(json.dumps({"tier": side, "channels": 3, "scale": 2.0}))
        (folder / "corpus").mkdir()
        generator = np.random.default_rng(0)
        for i in range(pictures):
            coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            picture = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)
            picture.save(folder / "corpus" / f"{i}.png")
        return folder

    return make


@pytest.fixture(scope="module")
def determinism_put_back() -> Iterator[None]:
    """For modules that run a command in this process: its switches are put back after the module."""
    from train.determinism import strict_within

    with strict_within():
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked gpu where there is no CUDA device; torch is asked only if there is such a test."""
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not on_gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
