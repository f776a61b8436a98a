"""Inner products across sigma against dense gradients by plain loops, and ``--policy`` as a person uses it."""

import json
import shutil

import numpy as np
import pytest
import torch

from analysis import policy_store, store
from analysis.entry import exit_code
from analysis.provenance import Code, Provenance
from probes import folds
from probes import sweep as sweeps
from probes.cli import app
from probes.gradients import Gradients
from probes.metrics import METRICS, Point
from probes.own import IN_MEMORY, OwnArm

SIGMAS, IMAGES, DRAWS = (0.2, 0.5, 0.8), tuple(f"i{n}" for n in range(10)), 8
SIZES = {"a.weight": (3, 2), "b.weight": (4,), "b.bias": (1,)}


def gradient(arm, sigma, image, draw):
    """Of one sample, by name, float32: from its own generator."""
    rng = np.random.default_rng([len(arm), int(sigma * 10), int(image[1:]), draw])
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SIZES.items()}


def measure(arm, sigma, samples):
    found = [gradient(arm.text, sigma, sample.image, sample.draw) for sample in samples]
    by_name = {name: torch.from_numpy(np.stack([one[name] for one in found])) for name in SIZES}
    return Gradients(torch.ones(len(samples)), by_name)


def sweep_of(draws=DRAWS, group=4):
    arms = tuple(OwnArm(name, lambda *_: ()) for name in ("native", "other"))
    point = Point({name: np.zeros(shape) for name, shape in SIZES.items()})
    return sweeps.Sweep(
        measure, arms, SIGMAS, IMAGES, draws, {"raw": METRICS["raw"]}, point, lambda name: name[0], ("a", "b"), group,
        folds.folds_of(len(IMAGES), draws),
    )  # fmt: skip


def begun(path, sweep):
    """Cells that are missing from the store, which is made if there is none."""
    return sweeps.open_or_create(path, sweep, IN_MEMORY, Provenance("", {}, Code("")), np.ones((2, len(IMAGES))))


def finished(path, sweep):
    with store.lock(path):
        sweeps.run(path, sweep, IN_MEMORY, begun(path, sweep), lambda _: None)
        folds.finish(path, sweep.folds, ["raw"], sweep.blocks, len(SIGMAS))
    return store.open_store(path).load()


def by_hand(unit_samples):
    """Inner products of plain means: unit_samples(sigma, arm, unit) -> list of (image, draw); [block, ...]."""
    found = {"a": {}, "b": {}}
    for block, means in found.items():
        for s, sigma in enumerate(SIGMAS):
            for a, arm in enumerate(("native", "other")):
                for unit, samples in enumerate(unit_samples):
                    total = 0.0
                    for image, draw in samples:
                        one = gradient(arm, sigma, image, draw)
                        parts = [one[name].ravel() for name in SIZES if name[0] == block]
                        total = total + np.concatenate(parts).astype(np.float64)
                    means[s, a, unit] = total / len(samples)
    return found


@pytest.mark.parametrize(("array", "units"), [("gram_policy", 10), ("gram_policy_corpus", DRAWS)])
def test_every_product_across_sigma_is_that_of_dense_gradients(tmp_path, array, units):
    data = finished(tmp_path / "p.zarr", sweep_of())
    if array == "gram_policy":
        samples = [[(image, d) for d in range(DRAWS)] for image in IMAGES]
    else:
        samples = [[(image, d) for image in IMAGES] for d in range(DRAWS)]
    for block, means in by_hand(samples).items():
        gram = data[array].sel(metric="raw", block=block).values
        assert gram.shape == (3, 2, units, 3, 2, units)
        for first, one in means.items():
            for second, other in means.items():
                assert gram[first + second] == pytest.approx(one @ other, abs=2e-6)
    assert data["fold_of_image"].values.tolist() == list(range(10))


def test_at_one_sigma_it_is_the_gram_of_images(tmp_path):
    data = finished(tmp_path / "p.zarr", sweep_of())
    for s in range(len(SIGMAS)):
        across = data["gram_policy"].isel(sigma=s, sigma_2=s).values
        assert across == pytest.approx(data["gram_image"].isel(sigma=s).values, abs=2e-6)
    flat = data["gram_policy"].values[0, 0].reshape(60, 60)
    assert np.array_equal(flat, flat.T)


def test_how_much_is_read_at_once_changes_nothing_but_rounding(tmp_path):
    sweep = sweep_of()
    begun(tmp_path / "p.zarr", sweep)
    sweeps.run(tmp_path / "p.zarr", sweep, IN_MEMORY, range(3), lambda _: None)
    files = sorted((tmp_path / "p.zarr" / folds.FOLDER).glob("*.safetensors"))
    whole = folds.product(files, folds.tensor_name("raw", "a", "images"))
    assert folds.product(files, folds.tensor_name("raw", "a", "images"), at_once=1) == pytest.approx(whole)


def test_few_draws_make_no_folds_of_draws(tmp_path):
    assert "gram_policy_corpus" not in finished(tmp_path / "p.zarr", sweep_of(draws=4))


def test_an_unfinished_store_reads_without_what_is_kept(tmp_path):
    sweep, path = sweep_of(), tmp_path / "p.zarr"
    begun(path, sweep)
    sweeps.run(path, sweep, IN_MEMORY, [1], lambda _: None)
    data = store.open_store(path)
    assert "gram_policy" not in data
    assert data["done"].values.tolist() == [False, True, False]


def test_a_sweep_stopped_anywhere_ends_the_same(tmp_path, monkeypatch):
    whole = finished(tmp_path / "whole.zarr", sweep_of())
    sweep, path = sweep_of(), tmp_path / "p.zarr"
    begun(path, sweep)
    sweeps.run(path, sweep, IN_MEMORY, [0, 1, 2], lambda _: None)
    (path / folds.FOLDER / "0001.safetensors").unlink()  # as if it had been lost
    assert begun(path, sweep) == [1]
    sweeps.run(path, sweep, IN_MEMORY, [1], lambda _: None)
    # Stopped in the final pass, at its third product of four.
    real, calls = folds.product, []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(folds, "product", failing)
    with pytest.raises(KeyboardInterrupt):
        folds.finish(path, sweep.folds, ["raw"], sweep.blocks, 3)
    assert not policy_store.is_there(path)
    assert "gram_policy" not in store.open_store(path)
    done = finished(path, sweep)
    assert len(calls) == 5  # two that were there are not made again
    for name in whole.variables:
        if name != "seconds":
            assert whole[name].values.tobytes() == done[name].values.tobytes(), name
    assert not (path / folds.FOLDER).exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.zarr", "whole.zarr"]


@pytest.mark.parametrize("arrays", range(1, 6))
def test_stopped_while_arrays_come_into_the_store(tmp_path, monkeypatch, arrays):
    sweep, path = sweep_of(), tmp_path / "p.zarr"
    begun(path, sweep)
    sweeps.run(path, sweep, IN_MEMORY, [0, 1, 2], lambda _: None)
    real, calls = policy_store.synchronise, []

    def failing(folder):
        calls.append(folder)
        if sum(one == path for one in calls) == arrays:
            raise KeyboardInterrupt
        real(folder)

    monkeypatch.setattr(policy_store, "synchronise", failing)
    with pytest.raises(KeyboardInterrupt):
        folds.finish(path, sweep.folds, ["raw"], sweep.blocks, 3)
    monkeypatch.undo()
    store.open_store(path)
    found = finished(path, sweep)
    assert {"gram_policy", "gram_policy_corpus", "fold_of_image", "sigma_2", "fold", "fold_2"} <= set(found.variables)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.zarr"]


SMALL = ["--sigma-grid", "0.25,0.75", "--images", "8", "--draws", "1", "--arm", "demote:48", "--policy"]


def probes(capsys, *arguments):
    capsys.readouterr()
    code = exit_code(app, ["grad", *map(str, arguments)], name="probes")
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    path = tmp_path_factory.mktemp("folds") / "p.zarr"
    assert exit_code(app, ["grad", *SMALL, "--threads", "1", "--out", str(path)], name="probes") == 0
    return path


@pytest.mark.usefixtures("determinism_put_back")
def test_the_command_keeps_what_policies_need(probed, capsys):
    data = store.open_store(probed)
    for s in range(2):
        across = data["gram_policy"].isel(sigma=s, sigma_2=s).values
        own = data["gram_image"].isel(sigma=s).values
        assert across == pytest.approx(own, rel=1e-5, abs=1e-6 * np.abs(own).max())
    assert not (probed / folds.FOLDER).exists()
    code, out, _ = probes(capsys, *SMALL, "--threads", "1", "--out", probed, "--json")
    assert (code, json.loads(out)["computed"]) == (0, 0)


@pytest.mark.usefixtures("determinism_put_back")
def test_processes_share_the_cells_and_change_no_byte(probed, tmp_path, capsys):
    code, _, err = probes(capsys, *SMALL, "--jobs", "2", "--out", tmp_path / "jobs.zarr")
    assert code == 0, err
    one, two = store.open_store(probed), store.open_store(tmp_path / "jobs.zarr")
    assert one["gram_policy"].values.tobytes() == two["gram_policy"].values.tobytes()


@pytest.mark.usefixtures("determinism_put_back")
def test_bad_input_and_what_it_takes(probed, tmp_path, capsys):
    code, _, err = probes(capsys, *SMALL, "--images", "7", "--out", tmp_path / "p.zarr")
    assert code == 2
    assert err.splitlines()[-1] == "probes: --policy with 7 images: takes 8 or more, a fold each; give more --images"
    copy = shutil.copytree(probed, tmp_path / "copy.zarr")
    code, _, err = probes(capsys, *[word for word in SMALL if word != "--policy"], "--out", copy)
    assert code == 2
    assert "setting policy is absent, it was true" in err
    code, out, _ = probes(capsys, *SMALL, "--dry-run", "--json", "--out", tmp_path / "p.zarr")
    assert code == 0
    coordinates = 2 * 2 * 8 * 4  # sigma, arms, folds, bytes
    assert json.loads(out)["folds"] % coordinates == 0
    assert json.loads(out)["folds"] > 0
