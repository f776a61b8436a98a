"""Forecasts against what happens: pilots in planted worlds, the sweep that each asks for, and its verdict."""

from dataclasses import replace

import numpy as np
import pytest

from analysis import synthetic, verdict
from analysis.calibration import Case, detects, power_laws
from analysis.calibration.cases import MARGIN
from analysis.calibration.forecasts import outlook, settled, simulate, table
from analysis.calibration.simulate import first
from analysis.planning import LARGEST, Asked, plan
from analysis.planning.report import duration
from analysis.synthetic import sample

PILOT = 8


def test_the_forecast_number_settles_most_verdicts() -> None:
    came_true = simulate([PILOT], ["mixed"], [0.0], [2.0], repeats=12)
    found = [one for of_ratio in came_true.values() for one in of_ratio]
    assert len(found) > 80
    assert 0.70 < np.mean(found) < 0.95


@pytest.mark.slow
def test_forecasts_hold_over_spectra_directions_and_tails() -> None:
    rates = simulate([PILOT], repeats=15)
    every = [one for found in rates.values() for one in found]
    assert len(every) > 1000
    assert 0.70 < np.mean(every) < 0.95
    clear = [one for ratio in (0.0, 0.5, 1.5, 2.0) for one in rates[ratio]]
    assert 0.75 < np.mean(clear) < 0.95


def test_a_sweep_is_asked_whether_it_has_a_verdict_and_rates_are_told() -> None:
    """Where nothing is known a verdict is rare, and where everything is no pilot is open."""
    assert table({0.0: [True, True, False], 0.5: [], 2.0: [False]}).splitlines()[2:] == [
        "| 0 margins | 3 | 67 % |",
        "| 2 margins | 1 | 0 % |",
        "| all | 4 | 50 % |",
    ]
    clear = Case("images", power_laws()["flat"], 32, bias_resolution=50.0, mean_resolution=50.0, relative_bias=0.0)
    assert list(settled(clear, 5, 0)) == []


def test_the_chance_grows_with_the_sweep_and_a_settled_pilot_needs_no_more() -> None:
    case = Case("images", power_laws()["1/k"], PILOT, bias_resolution=1.0, relative_bias=0.02)
    drawn = sample(case.world(), np.random.default_rng(0), repeats=20, images=PILOT).gradients
    seen = outlook(first(drawn, PILOT), MARGIN)
    chances = np.stack([seen.chance(factor) for factor in (1.0, 2.0, 4.0, 8.0, 16.0, LARGEST)])
    assert (np.diff(chances.mean((1, 2))) > 0.0).all()
    factors = seen.factor(0.8)
    at = np.isfinite(factors) & (factors > 1.0)
    assert at.any()
    assert seen.chance(np.where(at, factors, 1.0))[at] == pytest.approx(0.8, abs=0.02)
    assert (seen.factor(0.9) >= factors)[np.isfinite(seen.factor(0.9))].all()


def test_fewer_noise_makes_smaller_sweeps() -> None:
    case = Case("images", power_laws()["1/k"], PILOT, bias_resolution=1.0, relative_bias=0.02)
    seen = outlook(
        first(sample(case.world(), np.random.default_rng(0), repeats=20, images=PILOT).gradients, PILOT), MARGIN
    )
    quiet = seen.with_noise(np.full((20, 1), 0.5), np.full((20, 1), 0.5))
    known = np.isfinite(seen.factor(0.8)) & np.isfinite(quiet.factor(0.8))
    assert (quiet.factor(0.8) <= seen.factor(0.8))[known].all()
    assert np.median(quiet.factor(0.8)[known] / seen.factor(0.8)[known]) < 0.75


def test_a_bias_of_the_smallest_size_is_told_from_none_about_as_often_as_said() -> None:
    """But for one along the noisiest of few directions, as the plan's legend warns."""
    spectra = {name: power_laws()[name] for name in ("flat", "1/k")}
    told = detects.simulate(spectra, ["leading", "mixed"], repeats=200)
    assert 0.70 < told["flat", "mixed"] < 0.95
    assert 0.70 < told["1/k", "mixed"] < 0.95
    assert 0.70 < told["flat", "leading"] < 0.95
    assert 0.15 < told["1/k", "leading"] < 0.50
    assert detects.table({("flat", "mixed"): 0.8, ("1/k", "mixed"): 0.875}).splitlines()[2:] == [
        "| flat | 80 % |",
        "| 1/k | 88 % |",
    ]


def test_more_draws_are_worth_what_the_noise_within_images_says() -> None:
    """All noise within images: half the draws take about twice the images, and as many gradients."""
    world = synthetic.Planted(synthetic.power_law(1.0, 32), noise_scale=4.0, between=0.0, difference=0.7, mean="across")
    data = synthetic.store(
        arms=("native", "demote:56"), sigmas=(0.5,), blocks=("a",), images=24, draws=4, world=world, seed=2
    )
    (cell,) = plan(data, Asked(0.2)).cells
    assert cell.verdict == verdict.UNRESOLVED
    options = {option.draws: option for option in (cell.option, *cell.others) if option is not None}
    assert options[2].images > 1.5 * options[4].images
    assert options[8].images < 0.75 * options[4].images
    assert options[4].gradients == 2 * 4 * options[4].images
    between = replace(world, between=1.0, noise_scale=1.0)
    data = synthetic.store(
        arms=("native", "demote:56"), sigmas=(0.5,), blocks=("a",), images=24, draws=4, world=between, seed=2
    )
    (cell,) = plan(data, Asked(0.2)).cells
    options = {option.draws: option for option in (cell.option, *cell.others) if option is not None}
    assert options[1].images == pytest.approx(options[8].images, rel=0.05)


def test_durations_are_told_as_a_person_tells_them() -> None:
    assert [duration(seconds) for seconds in (4.4, 99.0, 130.0, 5000.0, 10000.0)] == [
        "4 s",
        "99 s",
        "2 min",
        "83 min",
        "2.8 h",
    ]
