"""Eq. 13 and 14, the horizon, its report and the store, on displacements whose answers are known."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.cli import app
from analysis.entry import exit_code
from analysis.errors import UsageError
from analysis.horizon import schema, store
from analysis.horizon.answer import as_json, assess
from analysis.horizon.reach import End, interval, reach, saturated_from
from analysis.horizon.report import as_text
from analysis.horizon.separation import RESOLUTION, length_ratio, nonlinearity, of_rounding, separation
from analysis.provenance import Code, Provenance
from analysis.synthetic import horizon_store

STEPS = (1, 2, 4, 8, 16, 32)
ORIGIN = Provenance("probes horizon", {"seed": 0}, Code("0.1.0"))


def gram_of(vectors):
    return vectors @ vectors.T


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e3))
def test_figures_of_a_gram_are_those_of_the_vectors(seed, size):
    rng = np.random.default_rng(seed)
    moved, half, whole = rng.standard_normal((3, 7))
    whole, half = size * whole, size * half
    gram = gram_of(np.stack([moved, half, whole]))
    norm = np.linalg.norm
    assert separation(gram) == pytest.approx([1, norm(half) / norm(moved), norm(whole) / norm(moved)])
    assert nonlinearity(gram, 2, 1) == pytest.approx(norm(whole - 2 * half) / norm(whole), rel=1e-6)
    assert length_ratio(gram, 2, 1) == pytest.approx(norm(whole) / (2 * norm(half)))


def test_a_doubled_displacement_is_linear_to_the_last_digit_there_is():
    rng = np.random.default_rng(0)
    moved, half = rng.standard_normal((2, 50))
    gram = gram_of(np.stack([moved, half, 2 * half]))
    assert nonlinearity(gram, 2, 1) <= 3 * RESOLUTION
    assert np.isnan(nonlinearity(np.zeros((3, 3)), 2, 1))


def test_a_saturated_separation_reads_one_and_a_half_ratio():
    rng = np.random.default_rng(0)
    moved, same = rng.standard_normal((2, 50))
    gram = gram_of(np.stack([moved, same, same]))
    assert nonlinearity(gram, 2, 1) == pytest.approx(1)
    assert length_ratio(gram, 2, 1) == pytest.approx(0.5)


def test_the_nonlinearity_of_rounding_is_that_of_positions_rounded_at_every_step():
    """A straight ruler, whose positions are rounded to a grid at each of k steps."""
    rng, spacing, steps, size = np.random.default_rng(0), 1e-3, 25, 4000
    pushes = {0.0: rng.standard_normal((steps, size)) * 1e-2}
    treatment = rng.standard_normal((steps, size)) * 1e-3
    pushes |= {dose: pushes[0.0] + dose * treatment for dose in (0.5, 1.0)}
    at = {dose: np.zeros(size) for dose in pushes}
    for step in range(steps):
        at = {dose: np.round((at[dose] + pushes[dose][step]) / spacing) * spacing for dose in pushes}
    half, whole = at[0.5] - at[0.0], at[1.0] - at[0.0]
    found = nonlinearity(gram_of(np.stack([at[0.0], half, whole])), 2, 1)
    expected = of_rounding(np.array([whole @ whole]), np.array([size * spacing**2 / 6]), np.array([steps]))
    assert found == pytest.approx(expected[0], rel=0.05)


def test_a_nonlinearity_that_rounding_could_make_is_left_out_and_told():
    clear = horizon_store(seeds=(3, 4))
    squares = np.diagonal(clear["gram"].values.sum(2), axis1=-2, axis2=-1)
    whole = clear["arm"].values.tolist().index("1")
    rounding = clear["rounding"].values.sum(2)
    # So coarse that at step 4, and there alone, rounding makes 0.06 of the full dose's separation.
    floor = 0.06**2 * squares[:, 2, whole] / (3 * 4)
    coarse = clear.copy(deep=True)
    coarse["rounding"].values[:, 2] *= (floor / rounding[:, 2])[:, None]
    answer = assess(coarse)
    bent, before = (assess(one).figures["nonlinearity"].sel(block="total", dose="1").values for one in (coarse, clear))
    assert np.isnan(bent[:, 2]).all()
    assert np.isnan(answer.figures["length_ratio"].sel(block="total", dose="1", step=4)).all()
    assert np.array_equal(np.delete(bent, 2, 1), np.delete(before, 2, 1))
    assert answer.reaches["total"]["1"].horizon == End(8, False)
    assert "A '-' of NL at step 4: float32 rounding alone could make half of 0.1 there." in " ".join(
        as_text(answer).split()
    )
    assert "A '-' of NL" not in as_text(assess(clear))


def test_doses_that_move_nothing_are_no_ruler_that_holds():
    still = horizon_store(seeds=(3, 4))
    still["gram"].values[..., 1:, :] = 0.0
    still["gram"].values[..., 1:] = 0.0
    answer = assess(still)
    text = " ".join(as_text(answer).split())
    assert str(End(0, True)) == "not known"
    assert "dose 1: not known" in text
    assert "or more" not in text
    assert "No dose moved a run away from the baseline: there is nothing to measure." in text
    assert as_json(answer, {})["horizons"][0]["horizon"] == {"step": 0, "open": True}


@pytest.mark.parametrize(
    ("curve", "found"),
    [
        ([0.01, 0.02, 0.03, 0.04, 0.05, 0.06], End(32, True)),
        ([0.01, 0.02, 0.03, 0.1, 0.05, 0.5], End(4, False)),
        ([0.2, 0.02, 0.03, 0.1, 0.05, 0.5], End(0, False)),
        ([np.nan, np.nan, 0.03, 0.1, 0.05, 0.5], End(4, False)),
        ([np.nan, np.nan, 0.3, 0.1, 0.05, 0.5], End(0, False)),
        ([np.nan, 0.01, np.nan, 0.3, 0.3, 0.3], End(2, False)),
        ([np.nan, 0.01, 0.02, np.nan, np.nan, np.nan], End(4, True)),
        ([np.nan] * 6, End(0, True)),
    ],
)
def test_the_horizon_is_the_last_step_before_the_first_at_the_limit(curve, found):
    assert reach(np.array([curve]), STEPS).horizon == found


def test_the_interval_is_students_on_the_logarithm_and_its_ends_bound_the_horizon():
    curves = np.array([[0.02, 0.04, 0.06, 0.09, 0.2, 0.5], [0.01, 0.02, 0.05, 0.08, 0.1, 0.4]])
    middle, lower, upper = interval(curves)
    logs = np.log(curves)
    half = stats.t.ppf(0.975, 1) * logs.std(0, ddof=1) / np.sqrt(2)
    assert np.log(middle) == pytest.approx(logs.mean(0))
    assert np.log(upper) - np.log(middle) == pytest.approx(half)
    assert np.log(middle) - np.log(lower) == pytest.approx(half)
    found = reach(curves, STEPS)
    assert found.horizon == End(8, False)
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower.step <= 8
    assert found.upper.open or found.upper.step >= 8
    assert found.by_seed == (End(8, False), End(8, False))
    assert reach(curves[:1], STEPS).lower is None


def test_an_interval_leaves_out_seeds_that_were_not_treated_yet():
    middle, lower, _ = interval(np.array([[np.nan, 1.0], [2.0, 4.0], [8.0, 2.0]]))
    assert middle == pytest.approx([4.0, 2.0])
    assert lower is not None
    assert np.log(middle[0] / lower[0]) == pytest.approx(stats.t.ppf(0.975, 1) * np.log(2))


def test_saturation_is_where_the_ratio_stays_low():
    ratio = np.array([[1.0, 0.9, 0.5, 0.8, 0.55, 0.5]])
    assert saturated_from(ratio, STEPS) == 16
    assert saturated_from(np.ones((1, 6)), STEPS) is None
    assert saturated_from(np.full((2, 6), 0.5), STEPS) == 1


def test_a_planted_bend_is_read_back_in_total_and_by_block():
    answer = assess(horizon_store(seeds=(3, 4)))
    bent = answer.figures["nonlinearity"].sel(block="total", dose="1").values
    expected = 0.01 * np.array(STEPS)
    assert bent[0] == pytest.approx(expected / np.sqrt(1 + (2 * expected) ** 2), rel=1e-4)
    assert answer.reaches["total"]["1"].horizon == End(8, False)
    assert answer.reaches["total"]["1/2"].horizon == End(16, False)
    assert answer.reaches["block_0"]["1"].horizon == End(8, False)
    assert answer.growth is not None
    assert answer.growth.rate == pytest.approx(0.1)
    assert answer.figures["separation"].sel(block="block_1", arm="1/4", step=4).values == pytest.approx(
        0.0025 / 0.4, rel=1e-3
    )


def test_the_report_and_the_object_say_the_same():
    answer = assess(horizon_store(seeds=(3, 4)))
    text, told = as_text(answer), json.loads(json.dumps(as_json(answer, {}), allow_nan=False))
    assert "planted" in text
    assert "geometric means over seeds" in " ".join(text.split())
    assert "dose 1: 8 (95 %: 8 to 8; by seed 8, 8)" in text
    assert told["horizons"][1]["horizon"] == {"step": 8, "open": False}
    assert told["growth"]["rate"] == pytest.approx(0.1)
    assert told["growth"]["error"] == pytest.approx(0.0, abs=1e-12)
    cell = next(c for c in told["cells"] if (c["step"], c["block"], c["arm"]) == (4, "total", "1"))
    assert cell["separation"] == pytest.approx(0.01 / 0.4, rel=1e-2)
    assert {"nonlinearity", "nonlinearity_lower", "length_ratio", "dose"} <= set(cell)
    assert f"Growth of the distance of jitters: 0.1 +- {told['growth']['error']:.2g} per step" in text


def test_a_cold_start_is_reported_as_what_it_is():
    assert "nearly sign(g)" in as_text(assess(horizon_store(seeds=(3, 4)).assign_attrs(start="cold")))
    assert "nearly sign(g)" not in as_text(assess(horizon_store(seeds=(3, 4))))


def test_one_seed_without_jitters_is_told_too(tmp_path):
    from analysis.horizon.command import draw

    answer = assess(horizon_store(seeds=(0,), jitters=0))
    assert answer.growth is None
    assert "dose 1: 8\n" in as_text(answer)
    assert "jitter" not in as_text(answer)
    draw(answer, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000


def test_the_figure_shades_up_to_the_horizon():
    from analysis.horizon.plots import horizon_figure

    left, right = horizon_figure(assess(horizon_store(seeds=(3, 4)))).axes
    for axes in (left, right):
        (shaded,) = axes.patches
        assert shaded.get_x() + shaded.get_width() == pytest.approx(8)
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_figure_without_a_linear_regime_speaks_of_no_shade():
    from analysis.horizon import plots

    short = assess(horizon_store(seeds=(3, 4)))
    assert "(shaded, 95 %: 8 to 8)" in plots.title(short)
    bent = horizon_store(seeds=(3, 4))
    bent["gram"].values[..., 1:, 1:] += np.diag([1e3 * (place + 1) for place in range(bent.sizes["arm"] - 1)])
    answer = assess(bent)
    assert answer.reaches["total"]["1"].horizon == End(0, False)
    assert "shaded" not in plots.title(answer)
    assert all(not axes.patches for axes in plots.horizon_figure(answer).axes)


def test_means_of_some_seeds_alone_are_told():
    data = horizon_store(seeds=(3, 4))
    assert "Separations and NL are of the seeds" not in as_text(assess(data))
    data["treated"].values[0, :2] = 0
    data["gram"].values[0, :2, ..., 1:] = 0.0
    data["gram"].values[0, :2, :, 1:] = 0.0
    first, second = data["step"].values[:2]
    assert (
        f"Separations and NL are of the seeds with a treated step by then: 1 at step {first}, 1 at step {second}."
        in " ".join(as_text(assess(data)).split())
    )


def test_a_store_holds_the_dataset_and_the_missing_seed_is_asked_for_again(tmp_path):
    dataset, path = horizon_store(seeds=(3, 4)), tmp_path / "h.zarr"
    empty = schema.template((3, 4), STEPS, ["block_0", "block_1"], {"1/4": 0.25, "1/2": 0.5, "1": 1.0},
                            [f"jitter {i}" for i in range(1, 9)], dataset.attrs)  # fmt: skip
    store.create(path, empty, ORIGIN)
    assert store.missing(path) == [0, 1]
    with pytest.raises(UsageError, match="no seed is done"):
        assess(store.read(path))
    store.write_cell(path, 1, {name: dataset[name].values[1] for name in schema.OF_CELL})
    assert store.missing(path) == [0]
    held = store.read(path)
    assert held["gram"].values[1].tobytes() == dataset["gram"].values[1].tobytes()
    assert assess(held).figures["seed"].values.tolist() == [4]
    assert store.provenance(path).settings == {"seed": 0}
    with pytest.raises(UsageError, match="exists already"):
        store.create(path, empty, ORIGIN)


def test_a_store_of_another_kind_or_damaged_figures_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no horizon store"):
        store.read(tmp_path)
    dataset = horizon_store(seeds=(3, 4))
    dataset["gram"].values[0, 0, 0, 1, 2] += 1
    with pytest.raises(UsageError, match="not symmetric"):
        schema.validate(dataset)
    with pytest.raises(UsageError, match="array rounding is missing"):
        schema.validate(horizon_store(seeds=(3, 4)).drop_vars("rounding"))
    with pytest.raises(UsageError, match="newer"):
        schema.validate(horizon_store(seeds=(3, 4)).assign_attrs(schema_version=2))


def test_a_store_is_told_again_without_a_model(tmp_path, capsys):
    dataset, path = horizon_store(seeds=(3, 4)), tmp_path / "h.zarr"
    store.create(path, dataset.assign(done=("seed", [False, False])), ORIGIN)
    for place in range(2):
        store.write_cell(path, place, {name: dataset[name].values[place] for name in schema.OF_CELL})
    assert exit_code(app, ["horizon", str(path)], name="analysis") == 0
    out = capsys.readouterr().out
    assert as_text(assess(store.read(path))) in out
    assert (tmp_path / "h.png").exists()
    assert exit_code(app, ["horizon", str(path), "--json"], name="analysis") == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [3, 4]
    assert exit_code(app, ["horizon", str(tmp_path)], name="analysis") == 2
    assert capsys.readouterr().err.count("\n") == 1
