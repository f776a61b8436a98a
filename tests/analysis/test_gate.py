"""A gate answers for a range that was named beforehand, and never says safe without every sigma of it."""

import numpy as np
import pytest
import xarray as xr

from analysis import gate as gates
from analysis.errors import UsageError
from analysis.gate import Gate

ARMS = ["demote:56", "demote:56@0.5:0.9", "repromote:56"]
GRID = [0.3, 0.3 + 3 * 0.05, 0.6, 1.0]


def assessed(p_safe, p_harmful, *, done=(0, 1, 2, 3), needed: float = np.nan) -> xr.Dataset:
    """One metric and arm, p values [sigma, block] for blocks a, b and total."""
    dims = ("metric", "sigma", "block", "arm")
    wrap = {
        name: (dims, np.broadcast_to(np.asarray(values, float), (4, 3))[None, list(done), :, None])
        for name, values in (("p_safe", p_safe), ("p_harmful", p_harmful), ("images_needed", needed))
    }
    wrap["verdict"] = (dims, np.full(wrap["p_safe"][1].shape, "unresolved"))
    coordinates = {"metric": ["raw"], "sigma": np.array(GRID)[list(done)], "block": ["a", "b", "total"]}
    return xr.Dataset(wrap, {**coordinates, "arm": ["demote:56"]}, {"population": "images"})


def decide(data: xr.Dataset, lo: float, hi: float, *, every_block: bool = False) -> gates.Decision:
    return gates.decide(data, Gate("demote:56", lo, hi), metric="raw", grid=GRID, every_block=every_block)


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("demote:56@0.7:0.9", Gate("demote:56", 0.7, 0.9)),
        ("demote:56@0.5:0.9@0.7:0.9", Gate("demote:56@0.5:0.9", 0.7, 0.9)),
        ("repromote:56@1:1", Gate("repromote:56", 1.0, 1.0)),
    ],
)
def test_a_gate_is_read(text: str, gate: Gate) -> None:
    assert gates.parse(text, ARMS) == gate


@pytest.mark.parametrize("text", ["", "demote:56", "@0.7:0.9", "demote:56@0.7", "demote:56@0.9:0.7", "demote:56@0:1"])
def test_a_bad_gate_names_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="is not of the form ARM@lo:hi"):
        gates.parse(text, ARMS)


@pytest.mark.parametrize("window", ["x:1", "0.5:nan", "0.5:1.5", "0.2:0.4:3"])
def test_a_bad_window_names_the_form(window: str) -> None:
    with pytest.raises(UsageError, match="is not of the form ARM@lo:hi"):
        gates.parse(f"demote:56@{window}", ARMS)


def test_an_unknown_arm_is_told_what_there_is() -> None:
    with pytest.raises(UsageError, match=r"asks for arm 'other'; this store has demote:56, "):
        gates.parse("other@0.5:0.9", ARMS)


@pytest.mark.parametrize(("lo", "hi"), [(0.2, 0.6), (0.3, 0.45), (0.46, 0.59)])
def test_both_ends_must_be_covered_and_are_included(lo: float, hi: float) -> None:
    data = assessed(0.001, 1.0)
    if (lo, hi) == (0.3, 0.45):
        assert decide(data, lo, hi).sigmas == (0.3, 0.3 + 3 * 0.05)
    else:
        with pytest.raises(UsageError, match=r"is not covered: the store's 4 sigmas reach from 0.3 to 1"):
            decide(data, lo, hi)


def test_safe_needs_every_sigma_of_the_range_uncorrected() -> None:
    p_safe = [[1, 1, 0.5], [1, 1, 0.02], [1, 1, 0.024], [1, 1, 0.001]]
    assert decide(assessed(p_safe, 1.0), 0.4, 1.0).exit_code == 0
    refused = decide(assessed(p_safe, 1.0, needed=41), 0.3, 1.0)
    assert refused.exit_code == 3
    assert refused.reason == "not shown to be safe at sigma 0.3; 41 images would settle it at the present estimate"


def test_harmful_somewhere_is_corrected_for_the_looks() -> None:
    p_harmful = np.ones((4, 3))
    p_harmful[1, 2] = 0.01
    assert decide(assessed(1.0, p_harmful), 0.4, 0.6).exit_code == 1  # 2 looks
    assert decide(assessed(1.0, p_harmful), 0.3, 1.0).exit_code == 3  # 4 looks
    p_harmful[1, 2] = 0.006
    decision = decide(assessed(0.0, p_harmful), 0.3, 1.0)
    assert (decision.exit_code, decision.reason) == (1, "at sigma 0.45, after correction for 4 looks")


def test_every_block_asks_the_blocks_and_not_their_sum() -> None:
    data = assessed([[0.001, 0.5, 0.001]] * 4, 1.0)
    assert decide(data, 0.3, 0.6).exit_code == 0
    assert decide(data, 0.3, 0.6, every_block=True).exit_code == 3
    assert decide(assessed([[0.001, 0.001, 0.5]] * 4, 1.0), 0.3, 0.6, every_block=True).exit_code == 0


def test_a_sigma_that_is_not_done_leaves_it_open_unless_harm_is_shown() -> None:
    assert decide(assessed(0.0, 1.0, done=(0, 1, 3)), 0.3, 0.6).reason == "1 of 3 sigmas are not done"
    assert decide(assessed(0.0, 1.0, done=(0, 3)), 0.44, 0.6).reason == "no sigma of the range is done"
    assert decide(assessed(1.0, 0.0, done=(0, 1, 3)), 0.3, 0.6).exit_code == 1


def test_an_undefined_p_value_shows_nothing() -> None:
    assert decide(assessed(np.nan, np.nan), 0.3, 0.6).exit_code == 3
