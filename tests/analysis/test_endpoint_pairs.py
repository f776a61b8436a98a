"""Verdicts of pairs: each word for its own reason, and none without a twin or a certificate."""

from collections.abc import Mapping

import numpy as np
import pytest
import xarray as xr

from analysis.endpoints import schema
from analysis.endpoints.pairs import (
    AT_FLOOR,
    BELOW_ONE,
    IDENTICAL,
    NO_FLOOR,
    REFUTED,
    SEPARATED,
    TOO_WIDE,
    TWINS,
    Pair,
    pairs,
)


def made(runs: Mapping[str, tuple[float, ...]], *, sure: bool = False, **about: list[bool] | list[str]) -> xr.Dataset:
    """A store of runs that moved by the given numbers, one a block; equal numbers are equal bytes.

    A name's first word is its treatment, so native-1 and native-2 are twins; with ``sure`` all are certified.
    """
    names, vectors = list(runs), np.array(list(runs.values()))
    gram = vectors.T[:, :, None] * vectors.T[:, None, :]
    differing = (vectors.T[:, :, None] != vectors.T[:, None, :]).astype(np.int64)
    count = len(names)
    along = {
        "treatment": [name.split("-")[0] for name in names],
        "window_lo": [0.5] * count,
        "window_hi": [1.0] * count,
        "dose": [0.5] * count,
        "certified": [sure] * count,
        "deterministic": [sure] * count,
        "command": ["c"] * count,
        "environment": ["e"] * count,
    } | about
    dims = ("step", "block", "arm", "arm_2")
    dataset = xr.Dataset(
        {
            "displacement": (dims, gram[None]),
            "differing_tensors": (dims, differing[None]),
            "treated_steps": (("step", "arm"), np.full((1, count), 5)),
            **{name: (("arm",), values) for name, values in along.items()},
        },
        {"step": [10], "block": [f"blocks.{b}" for b in range(vectors.shape[1])], "arm": names, "arm_2": names},
    )
    dataset = schema.described(dataset)
    schema.validate(dataset)
    return dataset


def verdicts(dataset: xr.Dataset, **options: bool | str) -> dict[str, str]:
    found = pairs(dataset, **options)  # pyright: ignore[reportArgumentType]
    return {f"{pair.a} {pair.b}": pair.total.verdict for pair in found}


#: Cosines with native: twins 0.98 to 0.995, treated 0.6.
RACING = {
    "native": (1.0, 0.0),
    "native-2": (1.0, 0.1),
    "native-3": (1.0, 0.2),
    "native-4": (1.0, 0.15),
    "treated": (0.6, 0.8),
    "near": (1.0, 0.12),
}


def test_three_twins_tell_what_is_separated():
    assert verdicts(made(RACING)) == {
        "native native-2": TWINS,
        "native native-3": TWINS,
        "native native-4": TWINS,
        "native treated": SEPARATED,
        "native near": AT_FLOOR,
    }


def test_a_floor_that_reaches_down_to_nothing_tells_nothing():
    wide = {
        "native": (1.0, 0.0, 0.0),
        "native-2": (1.0, 0.1, 0.0),
        "native-3": (1.0, 0.0, 3.0),
        "native-4": (1.0, 9.0, 0.0),
    }
    found = verdicts(made(wide | {"treated": (0.01, 1.0, 1.0), "near": (1.0, 0.1, 0.1)}))
    assert found["native treated"] == TOO_WIDE
    assert found["native near"] == TOO_WIDE


def test_fewer_twins_tell_no_spread():
    few = {name: RACING[name] for name in ("native", "native-2", "treated", "near")}
    found = verdicts(made(few))
    assert found["native treated"] == BELOW_ONE
    assert found["native near"] == BELOW_ONE
    above = verdicts(made(few | {"near": (1.0, 0.05)}))
    assert above["native near"] == AT_FLOOR


def test_without_twin_or_certificate_there_is_no_verdict():
    assert verdicts(made({"native": (1.0, 0.0), "treated": (0.6, 0.8)})) == {"native treated": NO_FLOOR}


def test_twins_of_either_run_count_and_those_of_a_third_do_not():
    runs = {"first": (1.0, 0.3), "second": (1.0, 0.9), **{f"native-{i}": RACING["native-2"] for i in range(3)}}
    assert verdicts(made(runs), baseline="first")["first second"] == NO_FLOOR
    own = {"other": (1.0, 0.3), **{f"treated-{i}": (0.6, 0.8 + 0.01 * i) for i in range(4)}}
    assert verdicts(made(own), baseline="other")["other treated-0"] == SEPARATED


def test_certificates_of_one_environment_tell_without_twins():
    runs = {"native": (1.0, 0.0), "treated": (1.0, 1e-9), "copy": (1.0, 0.0)}
    found = verdicts(made(runs, sure=True))
    assert found == {"native treated": SEPARATED, "native copy": IDENTICAL}


def test_a_block_that_is_equal_to_the_byte_is_identical_in_a_pair_that_is_separated():
    pair: Pair = pairs(made({"native": (1.0, 0.5), "treated": (1.0, 0.6)}, sure=True))[0]
    assert {name: figure.verdict for name, figure in pair.blocks.items()} == {
        "blocks.0": IDENTICAL,
        "blocks.1": SEPARATED,
    }


def test_determinism_that_was_asked_for_and_not_certified_tells_nothing():
    runs = {"native": (1.0, 0.0), "treated": (0.6, 0.8)}
    assert verdicts(made(runs, sure=True, certified=[False, False])) == {"native treated": NO_FLOOR}


def test_deterministic_twins_are_no_floor_for_a_racing_run():
    """Their cosine of 1 has no spread; the racing run's has, and it is not known."""
    runs = {**{f"native-{i}": (1.0, 0.0) for i in range(4)}, "racing": (1.0, 0.1)}
    along = {"deterministic": [True] * 4 + [False], "certified": [True] * 4 + [False]}
    assert verdicts(made(runs, **along), baseline="native-0")["native-0 racing"] == NO_FLOOR


def test_certified_twins_that_differ_refute_every_certificate_of_their_environment():
    runs = {"native": (1.0, 0.0), "native-2": (1.0, 1e-9), "treated": (0.6, 0.8)}
    found = {f"{p.a} {p.b}": p for p in pairs(made(runs, sure=True))}
    assert found["native native-2"].total.verdict == REFUTED
    assert found["native treated"].total.verdict == NO_FLOOR
    assert "do not count" in found["native treated"].note


def test_runs_of_other_environments_get_no_verdict_and_are_labelled():
    dataset = made({"native": (1.0, 0.0), "treated": (0.6, 0.8)}, sure=True, environment=["e", "f"])
    [pair] = pairs(dataset)
    assert pair.total.verdict == NO_FLOOR
    assert pair.note == "made in different environments"


def test_blocks_sum_to_the_total_before_division():
    [pair] = pairs(made({"a": (3.0, 4.0), "b": (1.0, -2.0)}))
    assert pair.total.cosine == pytest.approx((3 - 8) / (5 * np.sqrt(5)), abs=1e-15)
    assert (pair.total.norm_a, pair.total.norm_b) == pytest.approx((5.0, np.sqrt(5.0)))
    assert [figure.cosine for figure in pair.blocks.values()] == [1.0, -1.0]


def test_a_displacement_of_zero_has_no_cosine():
    [pair] = pairs(made({"a": (0.0, 1.0), "b": (1.0, 1.0)}))
    assert pair.blocks["blocks.0"].cosine is None
    assert pair.total.cosine is not None


def test_every_run_stands_beside_the_native_one_of_its_own_settings():
    runs = {"treated": (0.5, 0.5), "native": (1.0, 0.0), "treated-fast": (0.2, 0.5), "native-fast": (0.9, 0.0)}
    dataset = made(runs, command=["c", "c", "d", "d"])
    assert list(verdicts(dataset)) == ["native treated", "native-fast treated-fast", "native native-fast"]
    assert pairs(dataset)[2].note == "not the arm alone: their settings, data or code differ too"
    assert len(pairs(dataset, every=True)) == 6
