"""Equivalent doses: exact worlds, dense gradients, simulated coverage, and what is said where there is no figure."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import moments, schema, store, synthetic
from analysis.cli import app
from analysis.entry import exit_code
from analysis.marks import Measured, as_text, equivalents
from analysis.marks.known import Mark, mark, marks
from analysis.marks.sizes import jitter_squared, times_squared
from analysis.marks.words import significant
from analysis.provenance import Code, Provenance
from analysis.safety import assess

QUIET = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=1.0, difference=0.1)
ARMS = ("native", "gain:1.05", "demote:56", "shift:0.02", "shift:-0.05", "dtype:bf16")
BIAS = {"demote:56": (0.3, 0.6), "shift:0.02": (0.1, 0.1), "shift:-0.05": (0.25, 0.25), "dtype:bf16": (0.1, 0.2)}


def made(world: synthetic.Planted = QUIET, **changed: object) -> xr.Dataset:
    settings = {"arms": ARMS, "sigmas": (0.3, 0.6), "blocks": ("a", "b"), "images": 24, "relative_bias": BIAS}
    return synthetic.store(**{**settings, "world": world, **changed})


def idle(data: xr.Dataset, arm: str) -> xr.Dataset:
    """The store with ``arm`` making the native step at the second sigma."""
    names = data["arm"].values.tolist()
    instead = [0 if name == arm else place for place, name in enumerate(names)]
    for name in ("gram_image", "gram_draw", "gram_cross"):
        arms = [dim for dim in data[name].dims if str(dim).startswith("arm")]
        values = data[name].transpose("sigma", *arms, ...).copy()
        values[1] = values[1].isel(dict.fromkeys(arms, instead)).values
        data[name] = values.transpose(*data[name].dims)
    return data


def dose(found: Measured, **where: object) -> tuple[float, float, float]:
    [row] = [row for row in found.equivalents if all(getattr(row, name) == value for name, value in where.items())]
    return row.dose, row.lower, row.upper


@pytest.mark.parametrize(
    ("arm", "expected"),
    [
        ("gain:1.05", ("gain", 0.05)),
        ("gain:0.9", ("gain", 0.1)),
        ("jitter:1e-4", ("jitter", 1e-4)),
        ("shift:-0.05", ("shift", 0.05)),
        ("shift:0.02@0.5:0.9", ("shift", 0.02)),
        ("dtype:bf16@0.5", ("dtype", None)),
        ("shift:snr", None),
        ("shift:0", None),
        ("gain:1", None),
        ("demote:56", None),
        ("demote:56+shift:0.02", None),
        ("redraw", None),
        ("jitter:inf", None),
    ],
)
def test_a_mark_is_one_known_dose(arm: str, expected: tuple[str, float | None] | None) -> None:
    got = mark(arm)
    assert (got is None) == (expected is None)
    if got is not None and expected is not None:
        assert (got.kind, got.dose) == (expected[0], expected[1] if expected[1] is None else pytest.approx(expected[1]))
    assert marks(["dtype:bf16", "shift:0.2", "redraw", "shift:0.1"]) == [
        Mark("shift:0.1", "shift", 0.1),
        Mark("shift:0.2", "shift", 0.2),
        Mark("dtype:bf16", "dtype", None),
    ]


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_biases_without_noise_of_their_own_read_back_exactly(population: str) -> None:
    still = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=1.0, difference=0.0)
    found = equivalents(made(still, population=population), population=population)
    for sigma, shift, times in ((0.3, 0.06, 3.0), (0.6, 0.12, 3.0)):
        where = {"arm": "demote:56", "sigma": sigma}
        assert dose(found, **where, by="shift:0.02") == pytest.approx((shift,) * 3)
        assert dose(found, **where, by="shift:-0.05") == pytest.approx((shift,) * 3)
        assert dose(found, **where, by="dtype:bf16") == pytest.approx((times,) * 3)
        gain, lower, upper = dose(found, **where, kind="gain")
        assert lower < gain < upper
        assert 0.8 * shift * 5 < gain < 1.25 * shift * 5
        assert dose(found, arm="gain:1.05", sigma=sigma, kind="gain") == pytest.approx((0.05,) * 3)
        assert dose(found, arm="gain:1.05", sigma=sigma, kind="jitter") == pytest.approx((0.05,) * 3)
    assert found.warnings == []
    assert not [row for row in found.equivalents if row.arm == "shift:0.02" and row.by == "shift:-0.05"]


def test_sizes_are_those_of_dense_gradients() -> None:
    drawn = synthetic.sample(
        QUIET, np.random.default_rng(3), repeats=1, images=7, draws=3, relative_biases=[0.4, 0.2]
    ).gradients[0]
    image, draw, _ = synthetic.gram_arrays(drawn)
    measured = moments.images(image[None], draw[None], baseline=0, arms=[1, 2])

    def squared_bias(arm: int, images: range | list[int]) -> float:
        delta = drawn[arm].mean(1) - drawn[0].mean(1)
        return float(np.mean([delta[i] @ delta[j] for i, j in itertools.permutations(images, 2)]))

    times = times_squared(measured, 0, 1)
    assert times.value[0] == pytest.approx(squared_bias(1, range(7)) / squared_bias(2, range(7)))
    for left_out in range(7):
        rest = [i for i in range(7) if i != left_out]
        assert times.numerator.replicates[0, 0, left_out] == pytest.approx(squared_bias(1, rest))
        assert times.denominator.replicates[0, 0, left_out] == pytest.approx(squared_bias(2, rest))
    change = ((drawn[1] - drawn[0]) ** 2).sum(-1).mean() / (drawn[0] ** 2).sum(-1).mean()
    for population in ("images", "corpus"):
        found = jitter_squared(draw[None], 0, 1, population=population)
        assert found.value[0] == pytest.approx(change)
        assert found.lower[0] < change < found.upper[0]


def test_total_sums_over_blocks_first() -> None:
    data = made()
    found = equivalents(data)
    gain = dose(found, arm="demote:56", sigma=0.6, kind="gain")
    cell = assess(data, margin=0.2).sel(metric="raw", sigma=0.6, block="total", arm="demote:56")
    assert gain == pytest.approx([float(cell[name]) ** 0.5 for name in ("relative_bias_squared", "lower", "upper")])


@pytest.mark.parametrize("population", ["images", "corpus"])
@pytest.mark.parametrize("direction", ["leading", "mixed"])
def test_intervals_cover_the_planted_multiple(population: str, direction: str) -> None:
    world = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=1.0, difference=0.1, direction=direction)
    repeats = 600
    drawn = synthetic.sample(
        world,
        np.random.default_rng(1),
        repeats=repeats,
        images=8,
        draws=4,
        fixed_corpus=population == "corpus",
        relative_biases=[0.3, 0.1],
    )
    image, draw, cross = synthetic.gram_arrays(drawn.gradients)
    places = {"baseline": 0, "arms": [1, 2]}
    part = (
        moments.corpus(image, draw, cross, **places)
        if population == "corpus"
        else moments.images(image, draw, **places)
    )
    found = times_squared(part, 0, 1)
    resolved = ~np.isnan(found.lower)
    covered = (found.lower <= 9.0) & (found.upper >= 9.0)
    assert resolved.mean() > 0.9
    assert covered[resolved].mean() >= 0.93
    assert np.median(np.sqrt(found.value[resolved])) == pytest.approx(3.0, rel=0.05)


def test_intervals_cover_the_jitter_of_a_world() -> None:
    world = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=2.0, difference=0.2)
    drawn = synthetic.sample(world, np.random.default_rng(2), repeats=600, images=12, draws=2, relative_biases=[0.3])
    _, draw, _ = synthetic.gram_arrays(drawn.gradients)
    found = jitter_squared(draw, 0, 1, population="images")
    truth = (0.3**2 + 0.2**2 * 2.0) / (1.0 + 2.0)
    assert ((found.lower <= truth) & (found.upper >= truth)).mean() >= 0.93


def test_what_has_no_figure_says_why() -> None:
    noisy = synthetic.Planted(synthetic.power_law(0.0, 48), noise_scale=1.0, difference=0.5)
    data = made(noisy, images=8, relative_bias={"demote:56": 0.4}, arms=("native", "demote:56", "shift:0.02", "redraw"))
    found = equivalents(idle(data, "shift:0.02"))
    notes = {(row.arm, row.sigma, row.by or row.kind): row for row in found.equivalents}
    assert notes["demote:56", 0.3, "shift:0.02"].note == "the mark is not resolved; use a larger dose or more images"
    assert notes["demote:56", 0.6, "shift:0.02"].note == "the mark makes the native step there"
    assert notes["shift:0.02", 0.6, "gain"].note == "the arm makes the native step there"
    assert np.isnan([notes["demote:56", 0.3, "shift:0.02"].dose, notes["demote:56", 0.3, "shift:0.02"].upper]).all()
    text = " ".join(as_text(found, metric="raw").split())
    assert "shift:0.02: no figure, the mark is not resolved; use a larger dose or more images" in text
    assert "nothing: the arm makes the native step there, to the bit" in text
    assert "no bias shown: at most a gain of " in text
    assert found.warnings == []


def test_doses_out_of_proportion_and_a_false_gain_are_warned_of() -> None:
    bias = {"shift:0.02": 0.1, "shift:-0.05": (0.25, 0.6), "demote:56": 0.1}
    data = made(relative_bias=bias, seed=1).assign_coords(
        arm=["native", "gain:1.5", *ARMS[2:]], arm_2=["native", "gain:1.5", *ARMS[2:]]
    )
    false_gain, bent = equivalents(data).warnings
    assert false_gain == "gain:1.5 does not measure as a gain of 0.5 at sigma 0.3, 0.6"
    assert bent.startswith("shift:0.02 and shift:-0.05 are not in proportion at sigma 0.6 (1 of 2; by chance one in")


def test_a_shift_outside_its_window_is_in_no_proportion() -> None:
    assert equivalents(idle(made(seed=1), "shift:0.02")).warnings == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.0123, "0.012"), (3.0, "3.0"), (12.4, "12"), (123.4, "123"), (1.2e-7, "1.2e-07")]
)
def test_two_digits_are_shown(value: float, text: str) -> None:
    assert significant(value) == text


@pytest.fixture(scope="module")
def marked_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("marked") / "probe.zarr"
    store.write(
        path, schema.described(made(metrics=("raw", "weight"), images=10, blocks=("a",))), Provenance("", {}, Code(""))
    )
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = exit_code(app, ["safety", *map(str, arguments)], name="analysis")
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_safety_prints_sentences(capsys: pytest.CaptureFixture[str], marked_store: Path, tmp_path: Path) -> None:
    code, out, err = run(capsys, marked_store, "--marks", "--gate", "demote:56@0.3:0.3")
    assert (code, err) == (1, "")
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    found = equivalents(store.open_store(marked_store))
    where = {"metric": "raw", "arm": "demote:56", "sigma": 0.3}
    shift, times = ([significant(end) for end in dose(found, **where, by=by)] for by in ("shift:0.02", "dtype:bf16"))
    flat = " ".join(out.split())
    assert "Equivalent doses: each arm is as large as" in flat
    assert f"a sigma shift of {shift[0]} ({shift[1]} to {shift[2]}) by shift:0.02" in flat
    assert f"{times[0]} times dtype:bf16 ({times[1]} to {times[2]})" in flat
    assert "a shift's bias is taken to grow in proportion to it" in flat
    assert "Equivalent doses" not in run(capsys, marked_store, "--gate", "demote:56@0.3:0.3")[1]


def test_safety_json_holds_the_equivalents(capsys: pytest.CaptureFixture[str], marked_store: Path) -> None:
    code, out, _ = run(capsys, marked_store, "--marks", "--json")
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))["marks"]
    found = equivalents(store.open_store(marked_store))
    assert (code, len(told["equivalents"])) == (0, len(found.equivalents))
    assert {entry["arm"] for entry in told["marks"]} == {"gain:1.05", "shift:0.02", "shift:-0.05", "dtype:bf16"}
    for entry, row in zip(told["equivalents"], found.equivalents, strict=True):
        assert (entry["metric"], entry["sigma"], entry["arm"], entry["by"]) == (row.metric, row.sigma, row.arm, row.by)
        assert entry["dose"] == (row.dose if np.isfinite(row.dose) else None)
    assert "marks" not in json.loads(run(capsys, marked_store, "--json")[1])
    one = json.loads(run(capsys, marked_store, "--marks", "--json", "--metric", "weight")[1])["marks"]
    assert {entry["metric"] for entry in one["equivalents"]} == {"weight"}


def test_a_store_without_marks_says_how_to_get_them() -> None:
    text = as_text(equivalents(made(arms=("native", "demote:56"))), metric="raw")
    assert "probe again with, say, --arm shift:0.02 --arm dtype:bf16" in " ".join(text.split())
