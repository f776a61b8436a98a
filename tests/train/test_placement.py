from decimal import ROUND_CEILING, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import sigma_samplers
from train import sigma_draws
from train.arms import Placement, parse
from train.placement import AHEAD, depends_on_steps, eligible, eligible_steps, placed, schedule
from train.step_uniforms import step_uniforms


def drawing(text="uniform", samples=2, seed=0):
    sampler = sigma_samplers.parse(text)
    return lambda steps: sigma_draws.draw_sigma_table(sampler, seed=seed, steps=steps, samples=samples)


def by_hand(arm, steps, sigmas_of, seed):
    """Step by step: the lists of eligible and treated steps of ``arm``, a dictionary of its parts."""
    rows = [[float(sigma) for sigma in sigmas_of(range(step, step + 1))[0]] for step in range(steps)]
    able = [step for step, row in enumerate(rows) if all(arm["lo"] < sigma and sigma <= arm["hi"] for sigma in row)]
    if arm["where"] is None:
        return able, able
    if arm["where"] == "spread":
        coin = {step: step_uniforms(range(step, step + 1), 1, seed=seed, purpose="placement")[0, 0] for step in able}
        return able, [step for step in able if coin[step] < float(arm["share"])]
    count = int((Decimal(arm["share"]) * len(able)).to_integral_value(ROUND_CEILING))
    return able, able[:count] if arm["where"] == "early" else able[len(able) - count :]


@pytest.mark.parametrize("window", ["", "@0.5", "@0.2:0.7"])
@pytest.mark.parametrize("placing", [None, "early:0.3", "late:0.3", "spread:0.3", "early:1", "late:0.001", "spread:1"])
@pytest.mark.parametrize("samples", [1, 3])
def test_schedules_are_those_counted_by_hand(window, placing, samples):
    arm = parse(f"demote:56{window}" + (f"/{placing}" if placing else ""))
    low, _, high = window[1:].partition(":")
    where, _, share = (placing or "").partition(":")
    parts = {"lo": float(low or 0), "hi": float(high or 1), "where": where or None, "share": share}
    sigmas_of = drawing(samples=samples)
    able, treated = by_hand(parts, 300, sigmas_of, seed=5)
    plan = schedule(arm, 300, sigmas_of, seed=5)
    assert np.flatnonzero(plan.eligible).tolist() == able
    assert np.flatnonzero(plan.treated).tolist() == treated
    assert plan.first_treated == (treated[0] if treated else None)


def test_a_window_binds_every_sample_of_a_step():
    arm = parse("demote:56@0.5:0.9")
    assert eligible(arm, np.array([0.6, 0.9, 0.500001]))
    for outside in (0.5, 0.900001, 1.0, 0.1):
        for position in range(3):
            sigmas = np.full(3, 0.7)
            sigmas[position] = outside
            assert not eligible(arm, sigmas)
    table = np.array([[0.6, 0.7], [0.6, 0.5], [0.91, 0.7]])
    assert eligible_steps(arm, table).tolist() == [True, False, False]


def test_an_eligible_step_is_one_where_the_arm_changes_every_sample():
    arm, native = parse("demote:56@0.4:0.8"), parse("native")
    for sigmas in drawing(samples=2)(range(100)):
        assert eligible(arm, sigmas) == all(arm.plan(sigma) != native.plan(sigma) for sigma in sigmas.tolist())


@pytest.mark.parametrize("text", ["native", "native+native", "native@0.1/early:0.5", "native/spread:0.5"])
def test_native_treats_nothing(text):
    plan = schedule(parse(text), 50, drawing(), seed=0)
    assert not plan.eligible.any()
    assert not plan.treated.any()
    assert plan.first_treated is None


@settings(max_examples=25)
@given(share=st.integers(1, 100), steps=st.integers(1, 120))
def test_early_and_late_are_of_one_dose_and_spread_is_nested(share, steps):
    f = share / 100
    early, late, spread, wider = (
        schedule(parse(f"demote:56@0.5/{placing}"), steps, drawing(samples=1), seed=1)
        for placing in (f"early:{f}", f"late:{f}", f"spread:{f}", f"spread:{min(1, f + 0.2)}")
    )
    n = int(early.eligible.sum())
    assert early.treated.sum() == late.treated.sum() == -(-share * n // 100)  # whole numbers: rounded up
    for plan in (early, late, spread):
        assert not (plan.treated & ~plan.eligible).any()
    assert not (spread.treated & ~wider.treated).any()


@pytest.mark.parametrize(("share", "steps", "count"), [(0.07, 100, 7), (0.1, 30, 3), (0.29, 100, 29), (0.071, 100, 8)])
def test_a_share_is_the_decimal_number_that_was_written(share, steps, count):
    """In float64 0.07 x 100 is a little above 7, which rounded up would be 8."""
    for where in ("early", "late"):
        treated = placed(Placement(where, share), np.ones(steps, dtype=bool), seed=0)
        assert treated.sum() == count


def test_spread_and_no_placement_do_not_depend_on_the_number_of_steps():
    for text in ("demote:56@0.5", "demote:56@0.5/spread:0.4", "demote:56@0.5/early:0.4", "demote:56@0.5/late:0.4"):
        arm = parse(text)
        short, long = (schedule(arm, steps, drawing(samples=1), seed=0) for steps in (200, 1300))
        assert np.array_equal(short.eligible, long.eligible[:200])
        assert np.array_equal(short.treated, long.treated[:200]) == (not depends_on_steps(arm))


def test_coins_are_of_their_seed_and_not_the_sigma_draws():
    arm = parse("demote:56/spread:0.5")
    sigmas = drawing(samples=1)(range(4000))[:, 0]
    first, second = (schedule(arm, 4000, drawing(samples=1), seed=seed).treated for seed in (0, 1))
    assert abs(first.mean() - 0.5) < 5 * 0.5 / 4000**0.5
    assert abs(np.mean(first == second) - 0.5) < 5 * 0.5 / 4000**0.5
    assert abs(np.corrcoef(first, sigmas)[0, 1]) < 5 / 4000**0.5


def test_a_long_run_is_drawn_piece_by_piece():
    asked = []

    def sigmas_of(steps):
        asked.append(steps)
        return drawing(samples=1)(steps)

    plan = schedule(parse("demote:56@0.5/late:0.1"), 2 * AHEAD + 7, sigmas_of, seed=0)
    assert asked == [range(AHEAD), range(AHEAD, 2 * AHEAD), range(2 * AHEAD, 2 * AHEAD + 7)]
    whole = drawing(samples=1)(range(2 * AHEAD + 7))[:, 0] > 0.5
    assert np.array_equal(plan.eligible, whole)
    assert plan.treated.sum() == -(-whole.sum() // 10)
    assert np.flatnonzero(plan.treated)[0] > np.flatnonzero(whole)[-plan.treated.sum() - 1]


def test_no_arm_moves_a_sigma():
    """Drawing for one arm, or for several in turn, leaves what the next one is shown; nothing is written to it."""
    sigmas_of, shown = drawing("sigmoid:1+shift:3", samples=4), []

    def kept(steps):
        shown.append(sigmas_of(steps))
        shown[-1].flags.writeable = False
        return shown[-1]

    for text in ("native", "demote:56@0.5/early:0.5", "redraw@0.2/spread:0.5", "demote:48+shift:snr"):
        schedule(parse(text), 100, kept, seed=0)
    assert len({table.tobytes() for table in [*shown, sigmas_of(range(100))]}) == 1
