"""``analysis calibrate``: worlds that are the store's, rates that agree with the suite's, and what a store lacks."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import moments, schema, store, synthetic
from analysis.calibration import simulate
from analysis.calibration.command import supported
from analysis.calibration.power import power
from analysis.calibration.store_worlds import DesignCase, MeasuredCase, power_cases, size_cases, store_cell
from analysis.calibration.suite import Rate, calibrated, monte_carlo_error
from analysis.cli import app
from analysis.entry import exit_code
from analysis.errors import UsageError
from analysis.provenance import Code, Provenance

WORLD = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=2.0, between=0.3, difference=0.3, correlation=0.5)
QUIET = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=0.5, difference=0.05)


def made(**changed: object) -> xr.Dataset:
    settings = {"arms": ("native", "demote:56"), "sigmas": (0.3, 0.6, 0.9), "blocks": ("a", "b"), "images": 6}
    return synthetic.store(**{**settings, "world": QUIET, **changed})


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_the_noise_of_an_arm_is_read_back_from_its_store(population: str) -> None:
    data = made(world=WORLD, images=240, sigmas=(0.5,), blocks=("a",), population=population)
    for name in ("gram_image", "gram_draw", "gram_cross"):
        data[name] = 9.0 * data[name]  # the unit of gradients must not matter
    cases = list(
        power_cases(store_cell(data, sigma=None, metric=None, baseline="native"), population, 0.2, "demote:56")
    )
    assert [case.relative_bias for case in cases] == [0.0, 0.1, 0.4]
    world = cases[0].world()
    assert world.noise_scale == pytest.approx(2.0, rel=0.1)
    assert world.difference == pytest.approx(0.3, rel=0.05)
    assert world.correlation == pytest.approx(0.5, abs=0.05)
    assert world.between == pytest.approx(0.3, abs=0.04)
    assert (cases[0].images, cases[0].draws, len(world.spectrum)) == (240, 4, 480)


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_a_design_has_the_resolutions_that_it_names(population: str) -> None:
    flat = synthetic.power_law(0.0, 32)
    case = DesignCase(population, flat, images=8, draws=4, bias_resolution=3.0, mean_resolution=8.0, margin=0.2)
    world = replace(case, relative_bias=0.2).world()
    drawn = synthetic.sample(
        world, np.random.default_rng(0), repeats=3000, images=8, draws=4, fixed_corpus=population == "corpus"
    )
    image, draw, cross = synthetic.gram_arrays(drawn.gradients)
    places = {"baseline": 0, "arms": [1]}
    of_images, of_corpus = moments.images(image, draw, **places), moments.corpus(image, draw, cross, **places)
    part = of_images if population == "images" else of_corpus
    assert 0.2**2 / part.bias.value.std() == pytest.approx(3.0, rel=0.06)
    assert 1.0 / part.baseline.value.std() == pytest.approx(8.0, rel=0.06)


def test_sizes_are_tried_with_the_stores_own_spectrum_and_design() -> None:
    data = made(images=9)
    cell = store_cell(data, sigma=0.9, metric=None, baseline="native")
    cases = size_cases(cell, "images", 0.3)
    assert {(case.images, case.draws, case.margin, case.relative_bias) for case in cases} == {(9, 4, 0.3, 0.3)}
    assert len({case.name for case in cases}) == len(cases) == 12
    assert cases[0].spectrum == pytest.approx(synthetic.spectrum(data, sigma=0.9, parameters=64))


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_at_the_margin_power_is_the_suites_size(population: str) -> None:
    """Two routes to one figure: the same draws, asked by each of the two."""
    case = MeasuredCase(
        population, synthetic.power_law(1.0, 32), 6, 4, noise_scale=2.0, difference=0.1, relative_bias=0.2, margin=0.2
    )
    off, at = power(case, repeats=200, seed=3), simulate(case, repeats=200, seed=3)
    for rule in ("relative", "gap"):
        assert off[f"safe_{rule}"] == at[f"safe_{rule}"]
        assert off[f"harmful_{rule}"] == at[f"harmful_{rule}"]
    assert {f"safe_{rule}" for rule in ("relative", "angle", "budget", "gap")} <= set(off)


def test_a_quiet_store_settles_what_a_noisy_one_leaves_open() -> None:
    told = []
    settled = {}
    for name, world in (("quiet", QUIET), ("noisy", replace(QUIET, noise_scale=20.0, difference=1.0))):
        cell = store_cell(made(world=world, images=12), sigma=None, metric=None, baseline="native")
        found = calibrated(cell, "images", margin=0.3, repeats=100, tell=told.append)
        settled[name] = {(row.rule, row.factor): (row.safe, row.harmful) for row in found.power}
    assert len(told) == 2 * 15
    assert settled["quiet"]["relative", 0.0][0] > 0.9
    assert settled["quiet"]["relative", 2.0][1] > 0.9
    assert sum(settled["noisy"]["relative", 0.0]) < 0.3


def test_a_rate_says_how_uncertain_its_simulation_is() -> None:
    counts = np.random.default_rng(0).binomial(400, 0.1, 20000) / 400
    assert monte_carlo_error(0.1, 400) == pytest.approx(counts.std(), rel=0.05)
    assert 0.0 < monte_carlo_error(0.0, 400) < 0.01
    assert monte_carlo_error(0.0, 400) == pytest.approx(monte_carlo_error(1.0, 400))


def written(path: Path, data: xr.Dataset) -> Path:
    store.write(path, schema.described(data), Provenance("", {}, Code("")))
    return path


@pytest.fixture(scope="module")
def small_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("calibrate") / "probe.zarr", made(metrics=("raw", "weight")))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = exit_code(app, ["calibrate", *map(str, arguments)], name="analysis")
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_json_is_one_object_with_every_rate_and_its_error(
    capsys: pytest.CaptureFixture[str], small_store: Path
) -> None:
    code, out, err = run(capsys, small_store, "--json", "--repeats", 100, "--sigma", 0.9, "--metric", "weight")
    assert (code, err) == (0, "")
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert (told["images"], told["draws"], told["sigma"], told["repeats"]) == (6, 4, 0.9, 100)
    assert told["lacking"] == []
    cell = store_cell(store.open_store(small_store), sigma=0.9, metric="weight", baseline="native")
    assert set(told["populations"]) == {"images", "corpus"}
    found = calibrated(cell, "corpus", margin=0.2, repeats=100, tell=lambda name: None)
    part = told["populations"]["corpus"]
    rates = {(entry.pop("rate"), entry.pop("tails")): Rate(**entry) for entry in part["rates"]}
    assert rates == found.rates
    assert {name for name, _ in rates} >= {"safe_gap", "harmful_budget", "coverage_relative_bias_squared"}
    assert {(row["arm"], row["rule"]) for row in part["power"]} == {
        ("demote:56", rule) for rule in ("relative", "angle", "budget", "gap")
    }
    assert all(row["settled"] == row["safe"] + row["harmful"] for row in part["power"])
    assert rates["safe_relative", "light"].world in [case.name for case in size_cases(cell, "corpus", 0.2)]


def test_text_tells_sizes_coverage_and_power(capsys: pytest.CaptureFixture[str], small_store: Path) -> None:
    code, out, err = run(capsys, small_store, "--repeats", 100)
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    flat = " ".join(out.split())
    assert "spectrum of native at sigma 0.6, measured as this store was: 6 images x 4 draws, 100 repeats" in flat
    assert out.count("false safe, gap") == out.count("coverage, relative bias") == 2
    assert out.count("  demote:56 ") == 2 * 4
    assert "exactly this corpus" in out


def test_what_a_store_cannot_answer_is_left_out_with_its_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = made(sigmas=(0.5,))
    cell = store_cell(data, sigma=None, metric=None, baseline="native")
    assert supported(data, cell) == (["images", "corpus"], [])
    populations, [reason] = supported(data.drop_vars("gram_cross"), cell)
    assert (populations, reason) == (
        ["images"],
        "population corpus needs gram_cross, which this store was written without",
    )
    one = written(tmp_path / "one.zarr", data.isel(draw=[0], draw_2=[0]))
    code, out, _ = run(capsys, one, "--repeats", 100)
    assert code == 0
    assert "population corpus needs 4 draws per image and this store has 1" in " ".join(out.split())
    assert "rule gap needs 2 draws per image and this store has 1" in " ".join(out.split())
    assert "exactly this corpus" not in out
    assert "safe, gap" not in out


def test_an_arm_or_baseline_without_noise_to_plant_has_no_power_and_says_so() -> None:
    data = made(sigmas=(0.5,), arms=("native", "redraw"))
    cell = store_cell(data, sigma=None, metric=None, baseline="native")
    idle = replace(cell, gram_image=cell.gram_image[[0, 0]][:, :, [0, 0]])
    found = calibrated(idle, "images", margin=0.2, repeats=20, tell=lambda name: None)
    assert (found.power, found.skipped) == ([], ["redraw makes the step of native at sigma 0.5, or one without noise"])
    nothing = replace(cell, gram_image=cell.gram_image - 10.0 * np.abs(cell.gram_image).max())
    with pytest.raises(UsageError, match=r"mean gradient of native is not told from zero at sigma 0\.5"):
        list(power_cases(nothing, "images", 0.2, "redraw"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sigma", "0.5"], "sigma 0.5 is not a done cell of this store; it has 0.3, 0.6, 0.9"),
        (["--metric", "adam"], "metric 'adam' is not in this store; it has raw, weight"),
        (["--baseline", "none"], "arm 'none' is not in this store; it has native, demote:56"),
        (["--margin", "0"], "margin 0 is not a positive number"),
        (["--repeats", "10"], "Invalid value for '--repeats'"),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], small_store: Path, options: list[str], message: str
) -> None:
    code, out, err = run(capsys, small_store, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_too_few_images_or_no_cell_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few = made(images=3, sigmas=(0.5,))
    code, _, err = run(capsys, written(tmp_path / "few.zarr", few), "--repeats", 100)
    assert (code, err.count("\n"), "holds 3 images; calibration needs 4 or more" in err) == (2, 1, True)
    undone = made(sigmas=(0.5,)).assign(done=("sigma", [False]))
    code, _, err = run(capsys, written(tmp_path / "undone.zarr", undone), "--repeats", 100)
    assert (code, "no cell of this store is done" in err) == (2, True)
