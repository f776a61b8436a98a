"""Cells that stop by what they saw: when they do, and what is then claimed of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from scipy import special

from analysis import moments, schema, synthetic, verdict
from analysis.answer import gathered
from analysis.errors import Refused, UsageError
from analysis.safety import assess
from analysis.sequential import SETTING, TOTAL, Looks, Stopping, crossing, looks_of, nominal_level, repeated_p

ARMS = ["native", "redraw", "demote:56"]
LOOKS = Looks((6, 12))
QUIET = synthetic.Planted(synthetic.power_law(1.0, 48), noise_scale=0.5, difference=0.05)


@pytest.fixture(scope="module")
def clear() -> xr.Dataset:
    """``demote:56`` is harmful, beyond doubt; ``redraw`` is open at six images and twelve."""
    settings = {"arms": ARMS, "sigmas": (0.5,), "blocks": ("a", "b"), "metrics": ("raw", "weight"), "images": 12}
    return synthetic.store(**settings, draws=2, relative_bias={"demote:56": 0.8}, world=QUIET, seed=3)


def grams(data: xr.Dataset, n: int) -> tuple[np.ndarray, np.ndarray]:
    cell = data.isel(sigma=0)
    return cell["gram_image"].values[:, :, :, :n, :, :n], cell["gram_draw"].values[:, :, :n]


def test_a_cell_stops_when_every_verdict_it_waits_for_is_settled(clear: xr.Dataset) -> None:
    one = Stopping(LOOKS, ("demote:56",), 0.2)
    assert one.settled(*grams(clear, 6), ARMS)
    both = replace(one, arms=("demote:56", "redraw"))
    decided = verdict.decide(
        verdict.relative(part := total(clear, 6), 0.001), part.baseline, level=LOOKS.level("relative")
    )
    assert decided.verdict[0, 0] == verdict.UNRESOLVED
    assert not replace(both, margin=0.001).settled(*grams(clear, 6), ARMS)


def total(data: xr.Dataset, n: int) -> moments.Moments:
    """Of the sum over blocks: metric x (redraw, demote:56)."""
    image, draw = grams(data, n)
    return moments.images(image.sum(1), draw.sum(1), baseline=0, arms=[1, 2])


def test_every_metric_has_to_be_settled(clear: xr.Dataset) -> None:
    stopping = Stopping(LOOKS, ("demote:56",), 0.2)
    image, draw = (gram.copy() for gram in grams(clear, 6))
    image[1, :, 2], image[1, ..., 2, :] = image[1, :, 1], image[1, ..., 1, :]
    draw[1, :, :, 2], draw[1, ..., 2, :] = draw[1, :, :, 1], draw[1, ..., 1, :]
    assert replace(stopping, margin=0.001).settled(*grams(clear, 6), ARMS)
    assert not replace(stopping, margin=0.001).settled(image, draw, ARMS)


def test_an_arm_that_makes_the_native_step_is_not_waited_for(clear: xr.Dataset) -> None:
    idle = clear.isel(arm=[0, 0], arm_2=[0, 0])
    assert Stopping(LOOKS, ("demote:56@0.9",), 0.001).settled(*grams(idle, 6), ["native", "demote:56@0.9"])


def test_a_rule_that_errs_more_often_has_a_lower_level(clear: xr.Dataset) -> None:
    """Verdicts that lie between the level of ``budget`` and that of the others stop no cell."""
    part = total(clear, 6)
    lower, higher = LOOKS.level("budget"), LOOKS.level("relative")
    assert (lower, higher) == (nominal_level((0.5, 1.0), 0.025), nominal_level((0.5, 1.0), 0.05))
    stopped = []
    for margin in np.geomspace(0.1, 1000.0, 400):
        decided = verdict.decide(verdict.budget(part, float(margin)), part.baseline)
        p = np.minimum(decided.p_safe, decided.p_harmful)[:, 1]
        if (p < higher).all() and (p > lower).any():
            stopped.append(
                Stopping(LOOKS, ("demote:56",), float(margin), rule="budget").settled(*grams(clear, 6), ARMS)
            )
    assert stopped
    assert not any(stopped)


def test_what_a_store_says_of_it_is_json() -> None:
    said = Stopping(LOOKS, ("demote:56",), 50.0, rule="budget").as_setting()
    assert said == json.loads(json.dumps(said))


def test_a_rule_that_may_not_stop_a_sweep_gives_no_verdict_on_one_that_stopped(clear: xr.Dataset) -> None:
    assess(clear, rule="gap", margin=0.1, control="redraw")
    with pytest.raises(Refused, match="rule 'gap' is not known to err rarely where a sweep stopped"):
        assess(stopped(clear, 6, (6, 12)), rule="gap", margin=0.1, control="redraw")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"margin": 0.0}, "margin 0 is not a positive number"),
        ({"margin": float("nan")}, "margin nan is not a positive number"),
        ({"rule": "size"}, "rule 'size' cannot stop a sweep; relative, angle, budget can"),
        ({"rule": "gap"}, "rule 'gap' cannot stop a sweep; relative, angle, budget can"),
    ],
)
def test_what_nothing_could_settle_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Stopping(**{"looks": LOOKS, "arms": ("demote:56",), "margin": 0.2, **changed})


def test_a_repeated_p_value_is_the_chance_of_going_so_far_at_any_look() -> None:
    counts, shares = (6, 12, 18, 24), (0.25, 0.5, 0.75, 1.0)
    p_values = np.array([1e-12, 1e-6, 0.001, 0.0193, 0.3, 0.9, np.nan])
    found = repeated_p(p_values, counts)
    assert np.isnan(found[-1])
    exact = [crossing(-special.ndtri(p), shares) for p in p_values[1:-1]]
    assert found[1:-1] == pytest.approx(exact, rel=1e-4)
    assert found[0] == pytest.approx(4e-12, rel=0.5)
    assert repeated_p(np.array([nominal_level(shares)]), counts) == pytest.approx(TOTAL, rel=1e-4)
    assert np.array_equal(repeated_p(p_values, (24,)), p_values, equal_nan=True)
    grid = repeated_p(np.geomspace(1e-15, 1.0, 400), counts)
    assert (np.diff(grid) >= 0.0).all()
    assert repeated_p(np.array([0.0, 1.0]), counts) == pytest.approx([0.0, 1.0], abs=1e-3)


def stopped(data: xr.Dataset, used: int, counts: tuple[int, ...]) -> xr.Dataset:
    """``data`` as a sweep leaves it that stopped after ``used`` images."""
    gone = xr.DataArray(np.arange(data.sizes["image"]) >= used, dims="image")
    data = data.assign(images_used=("sigma", np.full(data.sizes["sigma"], used)))
    for name in ("gram_draw", "gram_cross", "loss"):
        data[name] = data[name].where(~gone)
    data["gram_image"] = data["gram_image"].where(~gone).where(~gone.rename(image="image_2"))
    said = Stopping(Looks(counts), ("demote:56",), 0.2)
    return schema.described(data).assign_attrs(settings=json.dumps({SETTING: said.as_setting()}))


def test_a_stopped_store_is_read_by_its_used_images_at_the_level_of_its_looks(clear: xr.Dataset) -> None:
    data = stopped(clear, 6, (6, 12))
    schema.validate(data)
    found = looks_of(data)
    assert found == LOOKS
    fixed = assess(clear.isel(image=slice(6), image_2=slice(6)).assign(images_used=("sigma", [6])), margin=0.2)
    made = assess(data, margin=0.2)
    for name in ("relative_bias_squared", "lower", "upper", "samples_to_notice"):
        assert np.array_equal(made[name], fixed[name], equal_nan=True)
    assert made["p_harmful"].values == pytest.approx(repeated_p(fixed["p_harmful"].values, (6, 12)))
    assert (made["p_harmful"] > fixed["p_harmful"]).sel(arm="demote:56").all()
    (warning,) = json.loads(made.attrs["warnings"])
    assert "to stop at 6 images as soon as its verdicts were settled, and 1 of 1 did before all 12:" in warning
    assert "3.04 % a look, 5 % over all looks" in warning
    assert json.loads(fixed.attrs["warnings"]) == []
    assert gathered(data, made).images == 6
    (none,) = json.loads(assess(stopped(clear, 12, (6, 12)), margin=0.2).attrs["warnings"])
    assert "and none of 1 did before all 12:" in none


def test_a_verdict_between_the_levels_counts_only_where_nobody_looked(clear: xr.Dataset) -> None:
    """Between the level of one of nine looks and that of a fixed sweep, only the latter has a verdict."""
    counts = tuple(range(4, 13))
    level, cell = Looks(counts).level("relative"), {"arm": "demote:56", "block": "total", "metric": "raw", "sigma": 0.5}
    between = []
    for margin in 0.8 * np.linspace(0.9, 1.0, 51):
        fixed = assess(clear, margin=float(margin)).sel(cell)
        if level < float(fixed["p_harmful"]) < verdict.LEVEL:
            looked = assess(stopped(clear, 12, counts), margin=float(margin)).sel(cell)
            between.append((fixed["verdict"].item(), looked["verdict"].item()))
    assert set(between) == {("harmful", "unresolved")}


def test_the_corpus_is_refused_where_the_sweep_chose_its_images(clear: xr.Dataset) -> None:
    data = synthetic.store(arms=ARMS, sigmas=(0.5,), images=12, draws=4)
    with pytest.raises(Refused, match="probe without --until-resolved"):
        assess(stopped(data, 6, (6, 12)), population="corpus")
