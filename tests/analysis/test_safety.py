"""assess and windows on whole synthetic stores: known answers, invariances, refusals."""

import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.errors import UsageError
from analysis.gate import Gate, decide
from analysis.safety import assess
from analysis.synthetic import Planted, power_law, store
from analysis.windows import windows

QUIET = Planted(power_law(1.0, 32), noise_scale=1.0, difference=0.1)
FIGURES = ("relative_bias_squared", "cosine", "norm_ratio", "gain", "turn_squared", "noise_scale", "samples_to_notice")


@pytest.fixture(scope="module")
def small() -> xr.Dataset:
    return store(images=8, sigmas=(0.3, 0.6), blocks=("a", "b"), world=QUIET, relative_bias={"demote:56": 0.3})


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_gain_reads_back_exactly(small: xr.Dataset, population: str) -> None:
    gain = assess(small, population=population, margin=0.2).sel(arm="gain:1.05")
    assert np.abs(gain["gain"] - 0.05).max() < 1e-6
    assert np.abs(gain["turn_squared"]).max() < 1e-10
    assert np.abs(gain["norm_ratio"] - 1.05).max() < 1e-6
    assert np.abs(gain["cosine"] - 1.0).max() < 1e-10
    assert np.abs(gain["gain_upper"] - gain["gain_lower"]).max() < 1e-6
    assert (gain["verdict"] == "safe").all()


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_redraw_is_zero_within_its_simultaneous_band(population: str) -> None:
    grid = tuple(np.linspace(0.1, 1.0, 13))
    data = store(images=12, arms=("native", "redraw"), sigmas=grid, blocks=("a",), world=QUIET, population=population)
    redraw = assess(data, population=population, margin=0.2)
    assert (redraw["simultaneous_lower"] <= 0).all()
    assert (redraw["simultaneous_upper"] >= 0).all()
    assert (redraw["simultaneous_lower"] <= redraw["lower"] + 1e-12).all()
    assert (redraw["simultaneous_upper"] >= redraw["upper"] - 1e-12).all()


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_a_planted_harmful_window_is_found_exactly(population: str) -> None:
    sigmas = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0)
    planted = [0.02, 0.02, 0.5, 0.5, 0.5, 0.02, 0.02, 0.02]
    data = store(
        arms=("native", "demote:56"),
        images=16,
        sigmas=sigmas,
        world=QUIET,
        relative_bias={"demote:56": planted},
        population=population,
    )
    found = assess(data, population=population, margin=0.2)
    assert [window.sigmas for window in windows(found, verdict="harmful")] == [(0.3, 0.4, 0.5)]
    expected = [(0.1, 0.2), (0.6, 0.7), (1.0,)]
    assert [window.sigmas for window in windows(found)] == expected
    assert [window.sigmas for window in windows(found, every_block=True)] == expected


def test_total_sums_over_blocks_before_any_division(small: xr.Dataset) -> None:
    summed = small.drop_vars(["gram_image", "gram_draw", "gram_cross"])
    summed = summed.isel(block=[0])
    for name in ("gram_image", "gram_draw", "gram_cross"):
        summed[name] = small[name].sum("block").expand_dims("block", 2).assign_coords(block=["a"])
    whole, single = assess(small, margin=0.2), assess(summed, margin=0.2)
    for name in ("relative_bias_squared", "lower", "upper", "cosine", "p_safe"):
        assert whole[name].sel(block="total").values == pytest.approx(single[name].sel(block="total").values)


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-4, 1e4))
def test_figures_ignore_the_order_of_images_and_the_unit_of_gradients(
    small: xr.Dataset, seed: int, scale: float
) -> None:
    order = np.random.default_rng(seed).permutation(small.sizes["image"])
    other = small.isel(image=order, image_2=order)
    other["loss"] = small["loss"]
    for name in ("gram_image", "gram_draw", "gram_cross"):
        other[name] = other[name] * scale
    for population in ("images", "corpus"):
        first, second = (assess(data, population=population, margin=0.2) for data in (small, other))
        for name in FIGURES:
            for suffix in ("", "_lower", "_upper") if name != "relative_bias_squared" else ("",):
                got, want = second[name + suffix].values, first[name + suffix].values
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-9)
        assert (first["verdict"] == second["verdict"]).all()


def test_unused_images_and_undone_cells_are_left_out(small: xr.Dataset) -> None:
    data = small.copy(deep=True)
    data["done"][0] = False
    data["images_used"][1] = 6
    data["gram_image"][:, 1, :, :, 6:] = np.nan
    data["gram_image"][:, 1, :, :, :, :, 6:] = np.nan
    data["gram_draw"][:, 1, :, 6:] = np.nan
    found = assess(data, margin=0.2)
    assert found["sigma"].values.tolist() == [0.6]
    assert "0.3 not done" in json.loads(found.attrs["warnings"])[0]
    expected = assess(
        small.isel(image=slice(6), image_2=slice(6), sigma=[1]).assign(images_used=("sigma", [6])), margin=0.2
    )
    xr.testing.assert_allclose(found.drop_vars("verdict"), expected.drop_vars("verdict"))


def test_heavy_tails_are_warned_of() -> None:
    heavy = Planted(power_law(1.0, 32), noise_scale=1.0, difference=0.1, tail=1.5)
    data = store(images=16, sigmas=(0.5,), world=heavy)
    assert any("few images hold most" in line for line in json.loads(assess(data, margin=0.2).attrs["warnings"]))
    light = store(images=16, sigmas=(0.5,), world=QUIET)
    assert json.loads(assess(light, margin=0.2).attrs["warnings"]) == []


def test_what_the_store_cannot_answer_is_said(small: xr.Dataset) -> None:
    cases = {
        "baseline 'x'": (small, {"baseline": "x"}),
        "population 'x'": (small, {"population": "x"}),
        "rule 'x'": (small, {"rule": "x"}),
        "margin -1": (small, {"margin": -1.0}),
        "rule gap needs a control": (small, {"rule": "gap"}),
        "no other rule": (small, {"control": "redraw"}),
        "control 'x'": (small, {"rule": "gap", "control": "x"}),
        "needs 4 draws": (small.isel(draw=slice(3), draw_2=slice(3)), {"population": "corpus"}),
        "needs gram_cross": (small.drop_vars("gram_cross"), {"population": "corpus"}),
        "at least 2 draws": (small.isel(draw=[0], draw_2=[0]), {"rule": "gap", "control": "redraw"}),
        "needs 4 or more": (small.assign(images_used=("sigma", [3, 3])), {}),
        "no arm but": (small.isel(arm=[0], arm_2=[0]), {}),
        "no cell": (small.assign(done=("sigma", [False, False])), {}),
    }
    for message, (data, request) in cases.items():
        with pytest.raises(UsageError, match=message):
            assess(data, **{"margin": 0.2, **request})


def test_one_draw_is_enough_for_images(small: xr.Dataset) -> None:
    found = assess(small.isel(draw=[0], draw_2=[0]), margin=0.2)
    assert np.isfinite(found["noise_scale"].sel(block="total")).all()


def test_an_arm_that_makes_the_native_step_has_no_verdict_and_no_window() -> None:
    data = store(images=8, arms=("native", "demote:56"), sigmas=(0.3, 0.6, 0.9), world=QUIET)
    for name in ("gram_image", "gram_draw", "gram_cross"):
        arms = [dim for dim in data[name].dims if str(dim).startswith("arm")]
        values = data[name].transpose("sigma", *arms, ...).copy()
        values[0] = values[0].isel({dim: [0, 0] for dim in arms}).values  # at 0.3 the arm is native
        data[name] = values.transpose(*data[name].dims)
    for population in ("images", "corpus"):
        found = assess(data, population=population, margin=100.0)
        total = found.sel(metric="raw", block="total", arm="demote:56")
        assert total.verdict.values.tolist() == ["inactive", "safe", "safe"]
        assert total.relative_bias_squared.values[0] == 0.0
        assert (found.sel(sigma=0.3).verdict == "inactive").all()
        assert [window.sigmas for window in windows(found)] == [(0.6, 0.9)]
    with pytest.raises(UsageError, match=r"makes the native step at sigma 0.3; gate on the sigma of its own window"):
        decide(found, Gate("demote:56", 0.3, 0.9), metric="raw", grid=(0.3, 0.6, 0.9))
    assert decide(found, Gate("demote:56", 0.6, 0.9), metric="raw", grid=(0.3, 0.6, 0.9)).verdict == "safe"
