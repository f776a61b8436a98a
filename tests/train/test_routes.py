"""Arms of several routes: the grammar, the schedule against counting by hand, runs, and policies taken from a file."""

import json

import numpy as np
import pytest

from analysis import sigma_samplers, store, synthetic
from analysis.entry import exit_code
from analysis.errors import Refused, UsageError
from analysis.provenance import Code, Provenance
from train import sigma_draws
from train.arms import Placement, parse
from train.cli import app
from train.placement import depends_on_steps, schedule
from train.plan import NATIVE, Tier
from train.run import run

pytestmark = pytest.mark.usefixtures("determinism_put_back")
TEXT = "demote:48@0.8, demote:7/8@0.4:0.8/early:0.5"


def drawing(samples):
    sampler = sigma_samplers.parse("uniform")
    return lambda steps: sigma_draws.draw_sigma_table(sampler, seed=3, steps=steps, samples=samples)


def test_every_route_has_a_window_and_a_placement_of_its_own():
    arm = parse(TEXT)
    assert [(route.lo, route.hi, route.placement) for route in arm.routes] == [
        (0.8, 1.0, None), (0.4, 0.8, Placement("early", 0.5))
    ]  # fmt: skip
    assert [arm.plan(sigma).demote for sigma in (0.3, 0.4, 0.5, 0.8, 0.81, 1.0)] == [
        None, None, Tier(None, 7, 8), Tier(None, 7, 8), Tier(48), Tier(48)
    ]  # fmt: skip
    assert (arm.lo, arm.hi) == (0.4, 1.0)
    assert depends_on_steps(arm)
    assert not depends_on_steps(parse("demote:48@0.8,demote:56@0.4:0.8/spread:0.5"))


def test_where_windows_overlap_the_first_route_wins_and_native_may_be_one():
    arm = parse("native@0.9,demote:48@0.5,demote:56")
    assert [arm.plan(sigma).demote for sigma in (0.2, 0.6, 0.95)] == [Tier(56), Tier(48), None]
    assert arm.plan(0.95) == NATIVE


@pytest.mark.parametrize("text", ["demote:48@0.8,", ",demote:48", "demote:48,,redraw", "demote:48@0.5,demote:x"])
def test_a_bad_route_is_one_line(text):
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("text", [TEXT, "native@0.9,demote:48@0.5,demote:56@0.1:0.95/late:0.3"])
def test_the_schedule_is_that_counted_by_hand(text, samples):
    arm, sigmas_of, steps = parse(text), drawing(samples), 300
    able = {place: [] for place in range(len(arm.routes))}
    for step in range(steps):
        row = sigmas_of(range(step, step + 1))[0]
        for place, route in enumerate(arm.routes):
            if all(route.lo < sigma <= route.hi for sigma in row):
                able[place].append(step)
                break
    found = schedule(arm, steps, sigmas_of, seed=3)
    for place, route in enumerate(arm.routes):
        mine = able[place] if route.active != NATIVE else []
        assert np.flatnonzero(found.route == place).tolist() == mine
        treated = mine
        if route.placement is not None:
            count = -(-len(mine) * int(10 * route.placement.fraction) // 10)
            treated = mine[:count] if route.placement.where == "early" else mine[len(mine) - count :]
        assert np.flatnonzero(found.by_route(len(arm.routes))[place]).tolist() == treated


def test_a_run_says_which_route_treated_a_step_and_how_many(settings_of, tmp_path):
    arm = "demote:48@0.7,demote:56@0.2:0.7"
    run(settings_of(arm=arm, steps=8), tmp_path / "run", resuming=False)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        sigma = row["sigma"][0]
        route, tier = (arm.split(",")[0], 48) if sigma > 0.7 else (arm.split(",")[1], 56) if sigma > 0.2 else (None, 64)
        assert (row["route"], row["tier"], row["treated"]) == (route, tier, route is not None)
    total = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert total["window"] == [0.2, 1.0]
    counted = [sum(row["route"] == text for row in rows) for text in arm.split(",")]
    assert min(counted) > 0
    assert [route["treated_steps"] for route in total["routes"]] == counted
    assert total["treated_steps"] == sum(counted)


def test_one_route_is_written_as_before(finished):
    _, out = finished
    assert "routes" not in json.loads((out / "summary.json").read_text())
    assert "route" not in json.loads((out / "metrics.jsonl").read_text().splitlines()[0])


def test_each_route_is_checked_before_the_first_step(settings_of, tmp_path):
    with pytest.raises(UsageError, match="54"):
        run(settings_of(arm="demote:56@0.5,demote:54@0.1:0.5"), tmp_path / "run", resuming=False)
    with pytest.raises(Refused, match="racing"):
        run(
            settings_of(arm="demote:56@0.5,attention:racing@0.1:0.5", deterministic=True),
            tmp_path / "run",
            resuming=False,
        )


def train(capsys, *arguments):
    capsys.readouterr()
    code = exit_code(app, list(map(str, arguments)), name="train")
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_policy_is_taken_from_the_file_that_analysis_wrote(tiny, tmp_path, capsys):
    from analysis.cli import app as analysis

    data = synthetic.policy_store(
        signed_bias={"demote:56": 0.0, "demote:48": (3.0, 3.0, 0.0, 0.0)}, sigmas=(0.125, 0.375, 0.625, 0.875),
        noise_scale=0.2, seconds={"demote:56": 0.8, "demote:48": 0.5},
    )  # fmt: skip
    store.write(tmp_path / "p.zarr", data, Provenance("", {}, Code("")))
    file = tmp_path / "policy.toml"
    words = ["policy", str(tmp_path / "p.zarr"), "--margin", "0.3", "--write", str(file)]
    assert exit_code(analysis, [*words, "--policy", "demote:48@0.5,demote:56@0:0.5"], name="analysis") == 0
    code, out, err = train(capsys, "--policy", file, "--model", tiny, "--steps", "6", "--dry-run")
    assert code == 0, err
    assert 'arm = "demote:48@0.5,demote:56@0:0.5"' in out
    assert 'sigma_sampler = "uniform"' in out
    for more, says in [
        (("--arm", "native"), "--arm native"),
        (("--weighting", "sigma-sqrt"), "--weighting sigma-sqrt"),
        (("--batch-size", "2"), "judged for 1 samples a step, the run has 2"),
    ]:
        code, _, err = train(capsys, "--policy", file, *more, "--dry-run")
        assert (code, len(err.splitlines())) == (2, 1)
        assert says in err
    assert exit_code(analysis, [*words, "--policy", "demote:48@0.5", "--samples", "4"], name="analysis") == 0
    more = ("--model", tiny, "--steps", "6", "--dry-run", "--batch-size", "2", "--accumulation", "2")
    assert train(capsys, "--policy", file, *more)[0] == 0


@pytest.mark.parametrize(
    ("content", "says"),
    [('arm = "native"\nsteps = 3\n', "nothing else"), ('sigma_sampler = "uniform"\n', "takes arm"), ("arm =", "TOML")],
)
def test_a_file_that_is_no_policy_is_one_line(tmp_path, capsys, content, says):
    file = tmp_path / "policy.toml"
    file.write_text(content)
    code, _, err = train(capsys, "--policy", file, "--dry-run")
    assert (code, len(err.splitlines())) == (2, 1)
    assert says in err
