"""A model of one or two blocks with a corpus, small enough to train it dozens of times, and runs of it."""

import re
from pathlib import Path

import pytest


@pytest.fixture
def plugged_in(tmp_path, monkeypatch):
    """docs/adding-a-family.md as a package that pip has installed: its code and its entry points."""
    page = (Path(__file__).parents[2] / "docs" / "adding-a-family.md").read_text()
    code, toml = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL).group(1) for kind in ("python", "toml"))
    assert len(code.splitlines()) < 100
    (tmp_path / "aura_flow_family.py").write_text(code)
    info = tmp_path / "aura_flow_family-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: aura-flow-family\nVersion: 1.0\n")
    groups = re.findall(r'\[project\.entry-points\."(.*?)"\]\n(.*) = "(.*)"\n', toml)
    assert [group for group, _, _ in groups] == ["sigma_probes.families", "sigma_probes.captions"]
    (info / "entry_points.txt").write_text("".join(f"[{group}]\n{name} = {at}\n" for group, name, at in groups))
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture(scope="session")
def tiny(tiny_flux):
    """Folder of a Flux of two blocks on 64 x 64 pixels: 257 keys, so that attention spans several key blocks."""
    return tiny_flux(64, 5)


@pytest.fixture(scope="session")
def finished(tiny, tmp_path_factory):
    """An uninterrupted run of six steps, a checkpoint every two, with two images a step."""
    from train.run import run
    from train.settings import Settings

    settings = Settings(
        model=str(tiny), steps=6, rank=2, threads=1, checkpoint_every=2, learning_rate=1e-3, batch_size=2,
        arm="demote:56@0.2",
    )  # fmt: skip
    out = tmp_path_factory.mktemp("finished") / "run"
    run(settings, out, resuming=False)
    return settings, out


@pytest.fixture
def settings_of(tiny):
    """Settings of a short run of the tiny model, with changes."""
    from train.settings import Settings

    def make(**changes):
        base = {"model": str(tiny), "steps": 6, "rank": 2, "threads": 1, "checkpoint_every": 2, "learning_rate": 1e-3}
        return Settings(**(base | changes))

    return make


@pytest.fixture
def job_of(settings_of):
    """A prepared job of such settings."""
    from train.job import prepare

    return lambda **changes: prepare(settings_of(**changes))


@pytest.fixture
def flash_attn(monkeypatch):
    """Puts a numerical stand-in of the flash-attn package in its place, for CPUs."""
    import importlib.util
    import sys

    spec = importlib.util.spec_from_file_location("flash_stand_in", Path(__file__).with_name("flash_stand_in.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def install(**how):
        stand_in = module.StandIn(**how)
        for name, replacement in stand_in.modules().items():
            monkeypatch.setitem(sys.modules, name, replacement)
        return stand_in

    return install
