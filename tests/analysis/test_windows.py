"""Holm's procedure against its definition, and windows as runs of safe grid points."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from analysis.base import holm
from analysis.errors import UsageError
from analysis.windows import windows


def assessed(p_safe: list[float], sigmas: list[float], *, worst_block: list[float] | None = None) -> xr.Dataset:
    """An assessed dataset of one arm and two blocks with given p values of the total."""
    blocks = np.array([p_safe, worst_block or p_safe, p_safe])
    variable = (("metric", "block", "sigma", "arm"), blocks[None, :, :, None])
    return xr.Dataset(
        {"p_safe": variable, "p_harmful": (variable[0], 1.0 - variable[1])},
        {"metric": ["raw"], "block": ["a", "b", "total"], "sigma": sigmas, "arm": ["demote:56"]},
        {"rule": "relative", "margin": 0.1, "population": "images"},
    )


def step_down(p_values: np.ndarray, level: float) -> np.ndarray:
    """Holm's rejections by the book: stop at the first p value that is too large."""
    rejected = np.zeros(len(p_values), dtype=bool)
    for step, index in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[index] >= level / (len(p_values) - step):
            break
        rejected[index] = True
    return rejected


@given(p_values=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8), level=st.floats(0.01, 0.3))
def test_adjusted_p_values_reject_as_holm_does(p_values: list[float], level: float) -> None:
    values = np.array(p_values)
    close = np.abs(values[:, None] * np.arange(1, len(values) + 1) - level).min() < 1e-12
    assert close or ((holm.adjusted(values) < level) == step_down(values, level)).all()


def test_holm_takes_an_unresolved_point_as_one() -> None:
    assert holm.adjusted(np.array([np.nan, 0.01])).tolist() == [1.0, 0.02]


def test_runs_are_windows_and_pure_noise_is_its_own() -> None:
    p_values = [1e-6, 1e-6, 0.4, 1e-6, 1e-6, 1e-6]
    found = windows(assessed(p_values, [0.2, 0.3, 0.4, 0.5, 0.6, 1.0]), "raw")
    assert [window.sigmas for window in found] == [(0.2, 0.3), (0.5, 0.6), (1.0,)]
    assert (found[0].lo, found[0].hi, found[0].arm) == (0.2, 0.3, "demote:56")
    assert "95 % confidence" in found[0].claim
    assert "nothing is said between" in found[0].claim


def test_points_chosen_by_the_data_are_corrected() -> None:
    p_values = [0.02, 0.5, 0.5, 0.5]
    assert windows(assessed(p_values, [0.2, 0.3, 0.4, 0.5])) == []
    assert len(windows(assessed([0.02], [0.2]))) == 1


def test_every_block_takes_the_worst_block_without_correction() -> None:
    data = assessed([1e-6, 1e-6], [0.2, 0.3], worst_block=[0.012, 0.3])
    assert [window.sigmas for window in windows(data)] == [(0.2, 0.3)]
    assert [window.sigmas for window in windows(data, every_block=True)] == [(0.2,)]


def test_bad_requests_are_named() -> None:
    data = assessed([0.1], [0.2])
    with pytest.raises(UsageError, match="metric 'weight'"):
        windows(data, "weight")
    with pytest.raises(UsageError, match="safe or harmful"):
        windows(data, verdict="unresolved")
    with pytest.raises(UsageError, match="every_block"):
        windows(data, verdict="harmful", every_block=True)
