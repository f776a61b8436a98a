"""Grids of a tier against a search over all of them."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.errors import UsageError
from train.cache.buckets import bucket, buckets, fits, largest_tier, tiers_of

SIZES = st.tuples(st.integers(40, 4000), st.integers(40, 4000)).filter(lambda s: max(s) <= 16 * min(s))


@given(SIZES, st.sampled_from([64, 128, 224, 512]), st.sampled_from([8, 16, 32]))
def test_a_grid_is_the_nearest_of_all_that_are_allowed(size, tier, unit):
    rows, columns = bucket(size, tier, unit)
    assert rows % unit == columns % unit == 0
    assert rows * columns <= tier * tier

    def off(height, width):
        return abs(log(height * size[1] / (width * size[0])))

    # Every grid that could not be longer along either side.
    full = [
        (a * unit, b * unit)
        for a in range(1, (tier // unit) ** 2 + 1)
        for b in [(tier // unit) ** 2 // a]
        if max(a, b) <= 16 * min(a, b)
    ]
    every = {*full, *((b, a) for a, b in full)}
    assert off(rows, columns) == pytest.approx(min(off(*grid) for grid in every), abs=1e-12)


@given(SIZES, st.sampled_from([64, 256, 1024]))
def test_a_turned_photograph_gets_the_turned_grid(size, tier):
    assert bucket(size[::-1], tier, 16) == bucket(size, tier, 16)[::-1]


def test_a_square_photograph_gets_the_square_grid():
    assert [bucket((3000, 3000), tier, 16) for tier in (1024, 896, 768)] == [(1024,) * 2, (896,) * 2, (768,) * 2]
    assert bucket((2000, 3000), 1024, 16) == (832, 1248)
    assert len(buckets(1024, 16)) > 100


def test_what_would_fit_is_the_largest_tier_that_does():
    size = (1000, 1500)
    assert not fits(size, 1280, 16)
    tier = largest_tier(size, 1280, 16)
    assert fits(size, tier, 16)
    assert not any(fits(size, more, 16) for more in range(tier + 16, 1280, 16))
    assert largest_tier((10, 10), 1024, 16) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [("1000", "multiple of 16 pixels, this model's; take 992 or 1008"), ("1024,1024", "twice"), ("big", "such as"),
     ("8", "take 16"), ("-16", "not a multiple"), ("1024,", "such as")],
)  # fmt: skip
def test_bad_tiers(text, says):
    with pytest.raises(UsageError, match=says):
        tiers_of(text, 16)


def test_tiers_come_from_the_largest_down():
    assert tiers_of("896,1024", 16) == (1024, 896)
