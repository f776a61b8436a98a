"""Repeated looks: the bound against exact and simulated chances, the schedule, and verdicts that stay honest."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from analysis import synthetic
from analysis.calibration import Case, looks, power_laws
from analysis.errors import UsageError
from analysis.sequential import TOTAL, TOTALS, Looks, crossing, nominal_level

EQUAL = {number: tuple(float(share) for share in np.arange(1, number + 1) / number) for number in (1, 2, 4, 8)}


def test_one_look_has_the_whole_total_and_two_are_a_normal_pair() -> None:
    assert nominal_level((1.0,)) == TOTAL
    below = stats.multivariate_normal.cdf([1.9, 1.9], mean=[0, 0], cov=[[1, np.sqrt(0.5)], [np.sqrt(0.5), 1]])
    assert crossing(1.9, (0.5, 1.0)) == pytest.approx(1.0 - below, abs=1e-6)
    assert crossing(1.9, (1.0,)) == pytest.approx(special.ndtr(-1.9), abs=1e-10)


@pytest.mark.parametrize(("number", "published"), [(4, 0.0192), (8, 0.0130)])
def test_the_chance_of_crossing_is_that_of_simulated_paths(number: int, published: float) -> None:
    shares = np.array(EQUAL[number])
    steps = np.random.default_rng(number).standard_normal((400_000, number)) * np.sqrt(np.diff(shares, prepend=0.0))
    highest = (steps.cumsum(1) / np.sqrt(shares)).max(1)
    level = nominal_level(EQUAL[number])
    assert level == pytest.approx(published, abs=2e-4)
    assert (highest > -special.ndtri(level)).mean() == pytest.approx(TOTAL, abs=0.0015)  # over 4 standard errors


@settings(max_examples=15)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0.005, 0.2))
def test_a_level_keeps_its_total_and_lies_between_the_total_and_its_share(steps: list[int], total: float) -> None:
    shares = tuple(float(share) for share in np.cumsum(steps) / sum(steps))
    level = nominal_level(shares, total)
    assert total / len(steps) - 1e-9 <= level <= total + 1e-9
    assert crossing(-special.ndtri(level), shares) == pytest.approx(total, abs=1e-7)


def test_looks_are_equally_spaced_and_end_with_every_image() -> None:
    assert Looks.equally_spaced(64, 4).counts == (16, 32, 48, 64)
    assert Looks.equally_spaced(26, 4).counts == (6, 13, 20, 26)
    assert Looks.equally_spaced(64, 4).level("relative") == pytest.approx(nominal_level(EQUAL[4]))
    assert Looks.equally_spaced(26, 4).level("angle") != Looks.equally_spaced(64, 4).level("angle")
    with pytest.raises(
        UsageError, match="would have 3 and a verdict needs 4; give 16 images or more, or at most 3 looks"
    ):
        Looks.equally_spaced(12, 4)
    for number in (1, 0, -1):
        with pytest.raises(UsageError, match=f"--looks {number}: give 2 or more"):
            Looks.equally_spaced(12, number)


def test_the_command_prints_what_is_used() -> None:
    command = [sys.executable, "-W", "error", "-m", "analysis.sequential", "1", "4"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.splitlines() == [
        "1 looks: nominal level 0.050000, bound 1.6449",
        f"4 looks: nominal level {nominal_level(EQUAL[4]):.6f}, bound 2.0674",
    ]


HARD = Case("images", power_laws()["1/k"], 64, bias_resolution=3.0)
"""Where false verdicts are as frequent as they get: a steep spectrum, and the bias along its first direction."""


def test_false_verdicts_stay_rare_over_all_looks_together() -> None:
    found = looks.simulate(replace(HARD, images=40), Looks.equally_spaced(40, 4), repeats=1000, seed=0)
    # Three standard errors of a rate of 6 % over 1000 repeats.
    sizes = {name: rate for name, rate in found.items() if name.startswith(("safe", "harmful"))}
    assert len(sizes) == 6
    assert max(sizes.values()) < 0.06 + 0.022


def test_the_level_of_a_single_look_would_be_too_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    at, case = Looks.equally_spaced(32, 8), replace(HARD, images=32)
    kept = looks.simulate(case, at, repeats=600, seed=0)["safe_relative"]
    monkeypatch.setattr(Looks, "level_of", lambda *_: TOTAL)
    eager = looks.simulate(case, at, repeats=600, seed=0)["safe_relative"]
    assert kept < 0.07 < 0.09 < eager


def test_a_clear_verdict_stops_early_and_an_open_one_does_not() -> None:
    at = Looks.equally_spaced(64, 4)
    clear = replace(HARD, bias_resolution=12.0)
    found = {rho: looks.simulate(replace(clear, relative_bias=rho), at, repeats=100, seed=0) for rho in (0.0, 0.1, 0.3)}
    assert found[0.0]["safe_relative"] > 0.95
    assert found[0.0]["harmful_relative"] < 0.01
    assert found[0.3]["harmful_relative"] > 0.95
    assert found[0.0]["images_relative"] < 40 > found[0.3]["images_relative"]
    assert found[0.1]["images_relative"] > 60


def test_verdicts_at_one_look_are_those_of_a_fixed_number_of_images() -> None:
    """At the level of a single look, and seen once, a sweep that grows is one that does not."""
    case = replace(HARD, relative_bias=0.0)
    once = looks.simulate(case, Looks((64,)), repeats=200, seed=3)
    twice = looks.simulate(case, Looks((32, 64)), repeats=200, seed=3)
    assert once["images_relative"] == 64.0
    assert twice["safe_relative"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("number", [4, 8])
def test_sizes_hold_over_every_spectrum(number: int) -> None:
    """The command of docs/method.md runs all cases with 4,000 repeats; here are those that matter."""
    spectra = power_laws() | {"mini": synthetic.mini_spectrum()}
    cases = [case for case in looks.look_grid(spectra, number) if case.bias_resolution == 3.0 and case.images <= 64]
    assert {case.direction for case in cases} == {"leading", "across"}
    too_large = []
    for seed, case in enumerate(cases):
        found = looks.simulate(case, Looks.equally_spaced(case.images, number), repeats=2000, seed=seed)
        for name in (f"{verdict}_{rule}" for verdict in ("safe", "harmful") for rule in TOTALS):
            if found[name] > 0.06 + 0.016:  # three standard errors of a rate of 6 % over the repeats
                too_large.append(f"{case.name}: {name} {found[name]:.4f}")
    assert too_large == []
