"""``--until-resolved``: which cells stop where, that they hold the first images alone, and resume to the byte."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from analysis import store
from analysis.entry import exit_code
from analysis.errors import UsageError
from analysis.provenance import Code, Provenance
from analysis.safety import assess
from analysis.sequential import Looks, Stopping
from probes import sweep as sweeps
from probes.budget import Budget
from probes.cli import app
from probes.gradients import Gradients
from probes.metrics import METRICS, Point
from probes.own import IN_MEMORY, OwnArm
from probes.preparation import resolve_arms
from probes.settings import Settings, Until, until
from probes.until_resolved import stopping_of

pytestmark = pytest.mark.usefixtures("determinism_put_back")

IMAGES = tuple(f"image_{place:02d}" for place in range(16))
BIAS = {"native": 0.0, "mild": 0.19, "wild": 1.0}
"""Along the first coordinate, of a mean gradient of length 1; at the second sigma a twentieth of it."""
POINT = Point({"layer.weight": np.zeros(6)})


def measured(arm, sigma, samples):
    """Gradients with a known bias, a function of arm, sigma and sample alone."""
    rows = []
    for sample in samples:
        seed = 1000 * IMAGES.index(sample.image) + 10 * sample.draw
        noise = np.random.default_rng(seed + 1).normal(size=6) * 0.15
        own = np.random.default_rng(seed + 2).normal(size=6) * 0.02 * (arm.text != "native")
        mean = np.eye(6)[1] + BIAS[arm.text] * (0.05 if sigma > 0.5 else 1.0) * np.eye(6)[0]
        rows.append(mean + noise + own)
    values = torch.tensor(np.stack(rows))
    return Gradients(values.square().sum(1), {"layer.weight": values})


def sweep(stopping, group=3, arms=("native", "mild", "wild")):
    return sweeps.Sweep(
        measure=measured,
        arms=tuple(OwnArm(arm, lambda *_: ()) for arm in arms),
        sigmas=(0.3, 0.9),
        images=IMAGES,
        draws=2,
        metrics={"raw": METRICS["raw"]},
        point=POINT,
        block_of=lambda name: name.rpartition(".")[0],
        blocks=("layer",),
        group=group,
        stopping=stopping,
    )


def stopping(*arms, looks=4):
    return Stopping(Looks.equally_spaced(len(IMAGES), looks), arms, 0.2)


def run(path, given, cells=None):
    """Run it, or only ``cells`` of what is missing; the gradients that the progress was told of."""
    told = []
    tokens = np.zeros((len(given.arms), len(IMAGES)), np.int64)
    said = {"until_resolved": given.stopping.as_setting()} if given.stopping else {}
    missing = sweeps.open_or_create(path, given, IN_MEMORY, Provenance("", said, Code("")), tokens)
    sweeps.run(path, given, IN_MEMORY, missing if cells is None else cells, told.append)
    return sum(told)


def test_a_cell_stops_at_the_first_look_that_settles_it(tmp_path: Path) -> None:
    told = run(tmp_path / "wild.zarr", sweep(stopping("wild")))
    data = store.open_store(tmp_path / "wild.zarr")
    assert data.images_used.values.tolist() == [4, 4]
    assert told == 3 * 16 * 2 * 2  # what is saved counts as done
    for used, cell in zip(data.images_used.values, (data.isel(sigma=place) for place in (0, 1)), strict=True):
        for name, axes in (("gram_image", ("image", "image_2")), ("gram_draw", ("image",)), ("loss", ("image",))):
            kept = cell[name].isel({axis: slice(used) for axis in axes})
            assert np.isfinite(kept).all()
            assert int(np.isfinite(cell[name]).sum()) == kept.size
        assert np.isfinite(cell["gram_cross"].isel(image=slice(used))).all()
        assert np.isnan(cell["gram_cross"].isel(image=slice(used, None))).all()


def test_a_cell_with_an_open_verdict_takes_every_image(tmp_path: Path) -> None:
    run(tmp_path / "mild.zarr", sweep(stopping("mild", "wild")))
    used = store.open_store(tmp_path / "mild.zarr").images_used.values.tolist()
    assert used == [16, 4]


def test_the_first_images_are_those_of_a_sweep_of_as_many(tmp_path: Path) -> None:
    run(tmp_path / "stopped.zarr", sweep(stopping("wild"), group=2))
    run(tmp_path / "whole.zarr", sweep(None, group=2))
    stopped, whole = (store.open_store(tmp_path / f"{name}.zarr") for name in ("stopped", "whole"))
    first = {"image": slice(4), "image_2": slice(4)}
    assert np.array_equal(stopped["gram_image"].isel(first), whole["gram_image"].isel(first))
    assert np.array_equal(stopped["gram_draw"].isel(image=slice(4)), whole["gram_draw"].isel(image=slice(4)))
    # gram_cross holds sums over the images used: those of a sweep of four.
    cross = stopped["gram_cross"].isel(image=slice(4)).sum("draw") / 2
    sums = np.moveaxis(stopped["gram_image"].isel(first).sum("image_2").values, -2, -3)
    assert cross.values == pytest.approx(sums)


@pytest.mark.parametrize("group", [1, 3, 5, 16])
def test_groups_end_at_looks_and_hold_every_image_once(group: int) -> None:
    groups = list(sweep(stopping("wild"), group=group).groups())
    assert [image for each in groups for image in each] == list(range(16))
    assert {4, 8, 12, 16} <= {each.stop for each in groups}
    assert max(map(len, groups)) <= group


def test_a_sweep_that_was_stopped_half_way_ends_with_the_same_bytes(tmp_path: Path) -> None:
    given = sweep(stopping("mild", "wild"))
    run(tmp_path / "once.zarr", given)
    run(tmp_path / "twice.zarr", given, cells=[1])
    run(tmp_path / "twice.zarr", given)
    once, twice = (store.open_store(tmp_path / f"{name}.zarr") for name in ("once", "twice"))
    for name in set(once.variables) - {"seconds"}:
        assert once[name].values.tobytes() == twice[name].values.tobytes(), name


def test_other_looks_are_another_store(tmp_path: Path) -> None:
    run(tmp_path / "a.zarr", sweep(stopping("wild")))
    with pytest.raises(UsageError, match="setting until_resolved"):
        run(tmp_path / "a.zarr", sweep(stopping("wild", looks=2)))


def test_safety_reads_what_was_used(tmp_path: Path) -> None:
    run(tmp_path / "a.zarr", sweep(stopping("mild", "wild")))
    run(tmp_path / "whole.zarr", sweep(None))
    stopped, whole = (assess(store.open_store(tmp_path / f"{name}.zarr"), margin=0.2) for name in ("a", "whole"))
    assert np.array_equal(stopped["lower"].sel(sigma=0.3), whole["lower"].sel(sigma=0.3))
    assert stopped["verdict"].sel(arm="wild", block="total").values.tolist() == [["harmful", "safe"]]
    assert not np.array_equal(stopped["lower"].sel(sigma=0.9), whole["lower"].sel(sigma=0.9))


ARMS = resolve_arms(("demote:56", "redraw"))


def settings(**changed) -> Settings:
    asked = {"sigma_grid": "0.5", "arms": (), "images": 16, "draws": 2, "metrics": ("raw",), "engine": "func"}
    others = {"chunk": 4, "attention": "sdpa", "model": "mini", "latents": None, "adapter": None, "rank": 16, "seed": 0}
    return Settings(**{**asked, **others, "jobs": None, "threads": None, "memory": 4.0, **changed})


def test_options_become_a_stopping() -> None:
    given = stopping_of(settings(until_resolved=Until(settle=("redraw",), margin=0.3)), ARMS)
    assert given == Stopping(Looks((4, 8, 12, 16)), ("redraw",), 0.3)
    assert stopping_of(settings(until_resolved=Until()), ARMS) == Stopping(
        Looks((4, 8, 12, 16)), ("demote:56", "redraw"), 0.2
    )
    assert stopping_of(settings(), ARMS) is None
    assert until(False, looks=None) is None


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"images": 12}, {}, "4 looks at 12 images: the first would have 3"),
        ({"policy": True}, {}, "--until-resolved with --policy"),
        ({}, {"settle": ("demote:48",)}, "--settle 'demote:48' is not a treated arm of this sweep; it has demote:56"),
        ({}, {"rule": "gap"}, "rule 'gap' cannot stop a sweep; relative, angle, budget can"),
        ({}, {"margin": 0.0}, "margin 0 is not a positive number"),
        ({}, {"rule": "budget"}, "rule 'budget' has no default margin"),
        ({}, {"rule": "size"}, "rule 'size' cannot stop a sweep"),
    ],
)
def test_what_cannot_stop_is_refused(changed: dict, options: dict, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        stopping_of(settings(**changed, until_resolved=Until(**options)), ARMS)
    assert message in str(refused.value)


def test_options_without_the_switch_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(app, ["grad", "--looks", "2"], name="probes") == 2
    assert "--looks says when a cell may stop: give --until-resolved with it" in capsys.readouterr().err
    assert exit_code(app, ["grad", "--settle", "redraw"], name="probes") == 2


def test_a_dry_run_says_that_it_is_the_worst_case() -> None:
    numbers = {"gradients": 1, "tokens": 1, "jobs": 1, "memory": 1, "scratch": 0, "disk": 1, "seconds": 1.0}
    budget = Budget(**numbers, seconds_of_group=1.0, gradients_of_group=1, cross=True, looks=(6, 12, 18))
    assert "looks      a cell may stop at 6, 12 or 18 images: this is the worst case" in str(budget)


@pytest.mark.slow
def test_the_command_stops_and_goes_on_with_one_process_or_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``gain:1.05`` is safe to the bit, once the native gradient is told from zero."""
    asked = ["--until-resolved", "--looks", "2", "--arm", "gain:1.05", "--images", "24", "--draws", "4"]
    asked = ["grad", *asked, "--sigma-grid", "0.7,0.75", "--json"]
    for jobs in ("1", "2"):
        assert exit_code(app, [*asked, "--jobs", jobs, "--out", str(tmp_path / f"{jobs}.zarr")], name="probes") == 0
    one, two = (store.open_store(tmp_path / f"{jobs}.zarr") for jobs in ("1", "2"))
    assert one.images_used.values.tolist() == [12, 12]
    for name in set(one.variables) - {"seconds"}:
        assert one[name].values.tobytes() == two[name].values.tobytes(), name
    assert '"images_used": 24, "images": 48' in capsys.readouterr().out
    assert exit_code(app, [*asked, "--dry-run", "--out", str(tmp_path / "dry.zarr")], name="probes") == 0
    assert '"looks": [12]' in capsys.readouterr().out


@pytest.mark.slow
def test_a_pilot_is_made_kept_and_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["plan", "--arm", "demote:48", "--images", "4", "--draws", "1", "--sigma-grid", "0.9", "--json"]
    assert exit_code(app, asked, name="probes") == 0
    first = capsys.readouterr()
    assert json.loads(first.out)["pilot"] == {"images": [4], "draws": 1, "unfinished": []}
    assert "1 of 1 cells computed now" in first.err
    assert exit_code(app, asked, name="probes") == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "0 of 1 cells computed now" in again.err


@pytest.mark.parametrize("number", ["1", "0", "-3"])
def test_a_single_look_saves_nothing_and_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["grad", "--until-resolved", "--arm", "repromote:56", "--sigma-grid", "0.9", "--dry-run"]
    assert exit_code(app, [*words, "--looks", number], name="probes") == 2
    assert f"--looks {number}: give 2 or more; with a single one, at the end, nothing" in capsys.readouterr().err
    assert exit_code(app, [*words, "--images", "6", "--looks", "2"], name="probes") == 2
    assert "2 looks at 6 images: the first would have 3 and a verdict needs 4; give 8 images or more\n" in (
        capsys.readouterr().err
    )
