import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from probes.grid import parse


def test_a_range_is_thirteen_points_with_both_ends():
    sigmas = parse("0.3:0.9").sigmas
    assert sigmas == (0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)


def test_counts_lists_and_segments():
    assert parse("0.2:1:3").sigmas == (0.2, 0.6, 1.0)
    assert parse("0.5, 0.7,1").sigmas == (0.5, 0.7, 1.0)
    assert parse("0.02:0.08:4,0.1:0.9:9").sigmas == (
        0.02,
        0.04,
        0.06,
        0.08,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
    )


def test_it_is_printed_as_resolved():
    assert str(parse("0.5:1:2")) == "2 sigma: 0.5 1"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not a number"),
        ("0.5,,0.7", "is not a number"),
        ("high", "is not a number"),
        ("0:0.5", "sigma 0; allowed"),
        ("-0.1", "sigma -0.1; allowed"),
        ("0.5:1.5", "1.0"),
        ("nan", "not finite"),
        ("0.5:inf", "not finite"),
        ("0.9:0.3", "does not increase"),
        ("0.5:0.5", "does not increase"),
        ("0.7,0.5", "0.5 follows 0.7"),
        ("0.5,0.5", "0.5 follows 0.5"),
        ("0.1:0.5,0.5:0.9", "0.5 follows 0.5"),
        ("0.1:0.9:1", "from 2"),
        ("0.1:0.9:2.5", "from 2"),
        ("0.1:0.2:3:4", "4 numbers"),
    ],
)
def test_bad_grids_are_one_line_that_shows_the_grid(text, says):
    with pytest.raises(UsageError, match="sigma grid") as caught:
        parse(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.floats(0.001, 0.5), st.floats(0.501, 1.0), st.integers(2, 50))
def test_ranges_hold_their_ends_and_are_even(lo, hi, points):
    sigmas = np.array(parse(f"{lo!r}:{hi!r}:{points}").sigmas)
    assert sigmas == pytest.approx(np.linspace(lo, hi, points), abs=1e-12)
    assert (np.diff(sigmas) > 0).all()
