"""Twenty deterministic steps of each family, twice: equal to the byte."""

import json

import pytest

from analysis.bytewise import compare
from analysis.file_pairs import compared
from analysis.run_folder import METRICS
from train.job import begin, prepare
from train.raw_tensors import raw
from train.run import run
from train.settings import Settings
from train.state import snapshot
from train.training_step import advance

pytestmark = pytest.mark.usefixtures("determinism_put_back")


def settings_of(tiny_family, **changes):
    """Twenty deterministic steps, those above sigma = 0.5 on the smaller grid."""
    settings = {
        "model": str(tiny_family.folder), "arm": "demote:48@0.5", "steps": 20, "deterministic": True, "rank": 2,
        "threads": 1, "learning_rate": 1e-2, "checkpoint_every": 0,
    }  # fmt: skip
    return Settings(**settings | changes)


def steps_taken(tiny_family, **changes):
    """Adapter and optimiser after every step, and what each step said."""
    settings = settings_of(tiny_family, **changes)
    begin(settings)
    job = prepare(settings, tiny_family.latents())
    outcomes = [advance(job, step) for step in range(settings.steps)]
    return raw(snapshot(job)), outcomes


def test_twenty_deterministic_steps_twice_are_equal_to_the_byte(tiny_family):
    (first, outcomes), (second, again) = steps_taken(tiny_family), steps_taken(tiny_family)
    found = compare(first, second)
    assert found.identical
    assert found.tensors > 10
    assert [o.losses.tobytes() for o in outcomes] == [o.losses.tobytes() for o in again]
    frames = 2 if tiny_family.frames else 1
    assert {(o.treated, o.tokens) for o in outcomes} == {(False, 24 * frames), (True, 12 * frames)}
    other, _ = steps_taken(tiny_family, seed=1, steps=1)
    assert not compare(first, other).identical


def trained(tiny_family, out, **changes):
    """A run as the command makes it, and its lines."""
    run(settings_of(tiny_family, **changes), out, resuming=False, latents=tiny_family.latents())
    rows = [json.loads(line) for line in (out / METRICS).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["fp32", "bf16"])
def test_whole_runs_with_certificates_are_equal_to_the_byte(tiny_family, tmp_path, weights):
    first, second = (trained(tiny_family, tmp_path / name, weights=weights, batch_size=2) for name in ("a", "b"))
    assert compared(tmp_path / "a", tmp_path / "b").identical
    assert first == second
    assert json.loads((tmp_path / "a" / "certificate.json").read_text())["granted"] is True


@pytest.mark.slow
def test_mixed_precision_with_activations_computed_again_is_the_same_training(tiny_family, tmp_path):
    plain, other = (
        trained(tiny_family, tmp_path / name, steps=3, precision="bf16", activation_checkpointing=name == "other")
        for name in ("plain", "other")
    )
    for a, b in zip(plain, other, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
