"""Verdicts without one part of their variance: the whole is the program's own, and every part is needed."""

import pytest

from analysis.calibration import Case, ablations, outstanding_grid, power_laws, simulate
from analysis.calibration.cases import HEAVY
from analysis.calibration.simulate import rates

WORST = {"flat": power_laws()["flat"], "1/k2": power_laws()["1/k2"]}


@pytest.mark.parametrize(
    "case",
    [
        Case("images", power_laws()["1/k2"], 6, bias_resolution=1.5),
        Case("images", power_laws()["flat"], 16, tail=HEAVY, relative_bias=0.2),
        next(outstanding_grid("images", [(8, 1)])),
    ],
)
def test_the_whole_variance_is_that_of_the_programs_verdict(case: Case) -> None:
    found = simulate(case, repeats=200, seed=1)
    told = rates(case, ablations.outcomes, repeats=200, seed=1)
    assert told[f"{ablations.KEPT}: safe"] == found["safe_relative"]
    assert told[f"{ablations.KEPT}: harmful"] == found["harmful_relative"]
    assert max(told.values()) > 0.0


def test_no_part_can_be_left_out() -> None:
    errors = ablations.simulate(WORST, repeats=400)
    whole = errors.pop(ablations.KEPT)
    assert max(whole.false_safe, whole.false_harmful) < 0.06
    careful = errors.pop("max(V − v, v)")
    assert whole.power < careful.power
    assert all(max(found.false_safe, found.false_harmful) > 0.07 for found in errors.values())


def test_errors_are_told_in_percent() -> None:
    told = ablations.table({"V − v": ablations.Errors(false_safe=0.139, false_harmful=0.1625, power=0.882)})
    assert told.splitlines()[2:] == ["| V − v | 13.9 % | 16.2 % | 88.2 % |"]
