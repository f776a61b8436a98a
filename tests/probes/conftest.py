"""A model of two blocks with a corpus, and a run of it with three checkpoints: small enough to probe in a second."""

import shutil

import pytest


@pytest.fixture(scope="session")
def small_model(tiny_flux):
    """Folder of a Flux of two blocks on 32 x 32 pixels, without an adapter, and its ten pictures."""
    return tiny_flux(32, 10)


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
