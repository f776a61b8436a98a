"""The prediction interval of twins' cosines: against scipy's own t statistics, and by simulation of whole floors."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from analysis.base.prediction import lowest_expected, middle

REPEATS = 4_000
Runs = Callable[[np.random.Generator, int], np.ndarray]


def test_the_lower_end_is_where_a_two_sample_t_test_of_one_more_value_turns():
    """The slow twin: the further value is a second sample of one, of equal variance."""
    twins = np.array([0.413, 0.385, 0.402, 0.44])
    least = float(lowest_expected(twins))

    def p_value(cosine: float) -> float:
        z, mean = np.arctanh(cosine), np.arctanh(twins).mean()
        spread = np.arctanh(twins).std(ddof=1) * np.sqrt(1 + 1 / twins.size)
        return float(2 * stats.t.sf(abs(z - mean) / spread, twins.size - 1))

    assert p_value(least) == pytest.approx(0.05, rel=1e-9)
    assert p_value(least - 0.01) < 0.05 < p_value(least + 0.01)


def test_equal_cosines_leave_no_room():
    assert lowest_expected(np.full(3, 0.5)) == pytest.approx(0.5)
    assert lowest_expected(np.ones(3)) == pytest.approx(1.0)


def test_cells_are_taken_one_by_one_and_nan_stays():
    cosines = np.array([[0.4, 0.5, 0.6], [0.1, 0.2, 0.4], [0.1, np.nan, 0.4]])
    together = lowest_expected(cosines)
    assert together[:2].tolist() == [float(lowest_expected(row)) for row in cosines[:2]]
    assert np.isnan(together[2])
    assert middle(cosines)[0] == pytest.approx(np.tanh(np.arctanh(cosines[0]).mean()))


def test_one_twin_has_no_spread():
    with pytest.raises(ValueError, match="1 cosines have no spread"):
        lowest_expected(np.array([0.4]))


def saturated(dimensions: int, floor: float) -> Runs:
    """Runs that share a signal and have forgotten everything else: cosines about ``floor``."""

    def runs(rng: np.random.Generator, count: int) -> np.ndarray:
        signal = np.full(dimensions, np.sqrt(floor / (1 - floor)))
        return signal + rng.standard_normal((REPEATS, count, dimensions))

    return runs


def parting(size: float, spread: float) -> Runs:
    """Runs on their way apart: each has been pushed off by a wobble that grew by a factor of its own."""

    def runs(rng: np.random.Generator, count: int) -> np.ndarray:
        grown = size * np.exp(spread * rng.standard_normal((REPEATS, count, 1)))
        return 1 + grown * rng.standard_normal((REPEATS, count, 50))

    return runs


FLOORS = {
    "saturated at 0.4": saturated(200, 0.4),
    "saturated at 0.4, few directions": saturated(5, 0.4),
    "saturated at 0.9": saturated(20, 0.9),
    "parting at 0.99": parting(0.1, 0.5),
    "parting at 0.5": parting(1.0, 0.5),
    "parting at 0.5, by factors": parting(1.0, 1.0),
}


@pytest.mark.parametrize("twins", [3, 4, 5, 8])
@pytest.mark.parametrize("kind", FLOORS)
def test_a_further_untreated_run_is_seldom_called_separated(kind: str, twins: int):
    """At most 6 % (2.5 % is nominal), and not never: run 0 is the native one, the last one is new."""
    runs = FLOORS[kind](np.random.default_rng(twins), twins + 2)
    runs /= np.linalg.norm(runs, axis=-1, keepdims=True)
    cosines = np.einsum("rd,rkd->rk", runs[:, 0], runs[:, 1:])
    called = float((cosines[:, -1] < lowest_expected(cosines[:, :-1])).mean())
    assert 0.005 < called <= 0.06
