"""``analysis policy`` as a person uses it: tables, JSON, pictures, files, and every way it can be asked in vain."""

import json
import shutil
import tomllib

import numpy as np
import pytest
import zarr

from analysis import store, synthetic
from analysis.cli import app
from analysis.entry import exit_code
from analysis.provenance import Code, Provenance
from analysis.report import signed_root

SIGMAS = (0.125, 0.375, 0.625, 0.875)
NAMED = "demote:48@0.8,demote:56@0.2:0.8"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "p.zarr"
    data = synthetic.policy_store(
        signed_bias={"demote:56": (0.3, -0.3, 0.3, -0.3), "demote:48": (2.0, 1.0, 0.1, 0.0)}, sigmas=SIGMAS,
        draws=8, noise_scale=0.3, seconds={"demote:56": 0.8, "demote:48": 0.5},
    )  # fmt: skip
    data["tokens"].values[:] = np.array([256, 196, 144])[:, None]
    store.write(path, data, Provenance("", {}, Code("")))
    return path


def analysis(capsys, *arguments):
    capsys.readouterr()
    code = exit_code(app, ["policy", *map(str, arguments)], name="analysis")
    said = capsys.readouterr()
    return code, said.out, said.err


def answer(capsys, *arguments):
    code, out, err = analysis(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_a_named_policy_is_told_in_total_and_block_by_block(path, capsys):
    found = answer(capsys, path, "--policy", NAMED, "--margin", "0.2")
    (policy,) = found["policies"]
    assert policy["routes"] == [
        {"arm": "demote:48", "lo": 0.8, "hi": 1.0}, {"arm": "demote:56", "lo": 0.2, "hi": 0.8}
    ]  # fmt: skip
    assert policy["treated"] == pytest.approx(0.8)
    assert policy["speed_up"] == pytest.approx(1 / (0.2 * 0.5 + 0.6 * 0.8 + 0.2))
    assert [cell["block"] for cell in found["cells"] if cell["policy"] == NAMED] == ["block_0", "block_1", "total"]
    total = next(cell for cell in found["cells"] if cell["policy"] == NAMED and cell["block"] == "total")
    for name in ("relative_bias_squared", "lower", "cosine", "norm_ratio", "samples_to_notice", "verdict", "p_safe"):
        assert total[name] == policy[name]
    assert (found["units"], found["unit"], found["uncovered"]) == (12, "fold of images", pytest.approx(0))


def test_tokens_are_another_cost(path, capsys):
    (policy,) = answer(capsys, path, "--policy", "demote:48", "--cost", "tokens")["policies"]
    assert policy["speed_up"] == pytest.approx(256 / 144)
    assert "verdict" not in policy


def test_draws_are_the_units_of_the_corpus(path, capsys):
    found = answer(capsys, path, "--population", "corpus", "--policy", "demote:56")
    assert (found["units"], found["unit"]) == (8, "draw")
    assert found["policies"][0]["relative_bias_squared"] == pytest.approx(0.0, abs=0.01)


def test_the_table_says_what_the_object_says(path, capsys):
    found = answer(capsys, path, "--margin", "0.25")
    code, out, _ = analysis(capsys, path, "--margin", "0.25")
    assert code == 0
    for policy in found["front"]:
        line = next(line for line in out.splitlines() if line.endswith(f" {policy['policy']}"))
        assert f"{policy['speed_up']:.3f}" in line
        assert f"{signed_root(policy['relative_bias_squared']):.3f}" in line
        assert policy["verdict"] in line
    assert f"Fastest that is safe in total and in every block: {found['picked']['policy']}" in " ".join(out.split())
    speeds = [policy["speed_up"] for policy in found["front"]]
    assert speeds == sorted(speeds)
    biases = [policy["relative_bias_squared"] for policy in found["front"]]
    assert biases == sorted(biases)


def test_what_was_picked_is_written_and_drawn(path, tmp_path, capsys):
    file, png = tmp_path / "policy.toml", tmp_path / "front.png"
    arguments = ["--rule", "relative", "--sigma-sampler", "sigmoid:1", "--write", file, "--png", png]
    found = answer(capsys, path, "--policy", NAMED, *arguments)
    assert tomllib.loads(file.read_text()) == {
        "arm": found["picked"]["policy"], "sigma_sampler": "sigmoid:1", "weighting": "none", "samples": 1
    }  # fmt: skip
    assert png.read_bytes().startswith(b"\x89PNG")
    assert found["files"] == {"Front": str(png), "Policy": str(file)}


def test_a_named_policy_is_written_without_verdicts(path, tmp_path, capsys):
    answer(capsys, path, "--policy", NAMED, "--write", tmp_path / "p.toml")
    assert tomllib.loads((tmp_path / "p.toml").read_text())["arm"] == NAMED


def test_where_nothing_is_safe_nothing_is_written(path, tmp_path, capsys):
    code, out, err = analysis(capsys, path, "--margin", "1e-6", "--write", tmp_path / "p.toml")
    assert code == 3
    assert "No policy is shown to be safe" in " ".join(out.split())
    assert err.count("\n") == 1
    assert "is not written: no policy is shown to be safe" in err
    assert not (tmp_path / "p.toml").exists()


def test_a_policy_against_another_baseline_is_not_written(path, tmp_path, capsys):
    """A run of it would be native outside its windows, and so another policy than the one judged."""
    words = [path, "--baseline", "demote:56", "--policy", "demote:48@0.8", "--write", tmp_path / "p.toml"]
    code, out, err = analysis(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--write with --baseline demote:56" in err
    assert not (tmp_path / "p.toml").exists()


def test_what_is_safe_and_no_faster_than_native_is_neither_picked_nor_on_the_front(tmp_path, capsys):
    data = synthetic.policy_store(
        signed_bias={"repromote:56": 0.0, "demote:48": 2.0}, sigmas=SIGMAS, noise_scale=0.3,
        seconds={"repromote:56": 1.003, "demote:48": 0.5},
    )  # fmt: skip
    store.write(tmp_path / "p.zarr", data, Provenance("", {}, Code("")))
    code, out, err = analysis(capsys, tmp_path / "p.zarr", "--margin", "0.3", "--write", tmp_path / "p.toml")
    assert code == 3
    assert "No policy that is shown to be safe is faster than native." in " ".join(out.split())
    assert "is not written: no policy that is shown to be safe at margin 0.3 is faster than native" in err
    found = answer(capsys, tmp_path / "p.zarr", "--margin", "0.3")
    assert found["safe_thresholds"]["repromote:56"]
    assert found["picked"] is None
    assert all(policy["speed_up"] > 1 for policy in found["front"])


def damaged_fold(group):
    group["fold_of_image"][:] = 0


def damaged_sign(group):
    group["gram_policy"][:] = -group["gram_policy"][:]


def damaged_order(group):
    values = group["gram_policy"][:]
    values[:, :, 1] = values[:, :, 1, :, ::-1].copy()
    group["gram_policy"][:] = values


def damaged_done(group):
    group["done"][2] = False


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (damaged_fold, "fold_of_image does not name the 12 folds"),
        (damaged_sign, "gram_policy holds no inner products"),
        (damaged_order, "gram_policy holds no inner products"),
        (damaged_done, "cells that are not done"),
    ],
)
def test_a_damaged_store_is_one_line(damage, says, path, tmp_path, capsys):
    shutil.copytree(path, tmp_path / "p.zarr")
    damage(zarr.open_group(tmp_path / "p.zarr", mode="r+", use_consolidated=False))
    code, out, err = analysis(capsys, tmp_path / "p.zarr", "--policy", "demote:56")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_one_sigma_that_stands_for_much_is_told(path, capsys):
    found = answer(capsys, path, "--sigma-sampler", "uniform@0.8:0.9", "--policy", "demote:48")
    assert found["warnings"] == [
        "100 % of what the sampler draws is judged by the gradient at sigma 0.875 alone; probe a finer grid there"
    ]
    assert answer(capsys, path, "--policy", "demote:48")["warnings"] == []


def test_a_grid_that_leaves_out_too_much_gives_figures_and_no_verdict(tmp_path, capsys):
    data = synthetic.policy_store(signed_bias={"demote:56": 0.1}, sigmas=(0.3, 0.5, 0.7))
    store.write(tmp_path / "p.zarr", data, Provenance("", {}, Code("")))
    found = answer(capsys, tmp_path / "p.zarr", "--policy", "demote:56")
    assert found["uncovered"] == pytest.approx(0.4)
    assert "40.0 % of what the sampler draws lies outside" in found["warnings"][0]
    code, out, err = analysis(capsys, tmp_path / "p.zarr", "--margin", "0.2")
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "60.0 % of what sampler uniform draws" in err
    inside = ["--sigma-sampler", "uniform@0.2:0.8", "--margin", "0.2"]
    assert answer(capsys, tmp_path / "p.zarr", *inside)["uncovered"] == pytest.approx(0)
    code, _, err = analysis(capsys, tmp_path / "p.zarr", "--sigma-sampler", "uniform@0.9")
    assert code == 2
    assert "draws nothing near" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "demote:57@0.5"], "no arm 'demote:57' in this store; the nearest of"),
        (["--policy", "demote:56@0.3,demote:48@0.5"], "overlap"),
        (["--policy", "demote:56@0.4:0.6"], "no sigma of the store lies in the window of demote:56@0.4:0.6"),
        (["--policy", "demote:56@0.6:0.4"], "lo < hi"),
        (["--policy", "native"], "no arm 'native'"),
        (["--policy", ""], "no arm ''"),
        (["--sigma-sampler", "cubic"], "sigma sampler 'cubic'"),
        (["--cost", "euros"], "cost 'euros' is not one of seconds, tokens"),
        (["--population", "world"], "population 'world' is not one of"),
        (["--rule", "gap"], "rule 'gap' is not one of relative, angle"),
        (["--margin", "0"], "margin 0: rule relative takes a number above 0"),
        (["--margin", "nan"], "margin nan"),
        (["--rule", "angle", "--margin", "2"], "above 0, below 2"),
        (["--metric", "adam"], "metric 'adam' is not in this store; it has raw"),
        (["--baseline", "demote:1"], "baseline 'demote:1' is not an arm"),
        (["--samples", "0"], "samples"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(path, capsys, arguments, says):
    code, out, err = analysis(capsys, path, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_store_without_products_across_sigma_says_how_to_make_one(probe_store, tmp_path, capsys):
    code, _, err = analysis(capsys, probe_store)
    assert code == 2
    assert "probes grad --policy" in err
    data = synthetic.policy_store(signed_bias={"demote:56": 0.1}, sigmas=SIGMAS, draws=4)
    store.write(tmp_path / "p.zarr", data, Provenance("", {}, Code("")))
    code, _, err = analysis(capsys, tmp_path / "p.zarr", "--population", "corpus")
    assert code == 2
    assert "needs 8 draws or more for a policy and this store has 4" in err


def test_the_arrays_go_through_disk_and_netcdf_unchanged(path, tmp_path):
    import xarray as xr

    read = store.open_store(path)
    store.export(path, tmp_path / "p.nc")
    with xr.open_dataset(tmp_path / "p.nc", engine="h5netcdf") as exported:
        for name in ("gram_policy", "gram_policy_corpus", "fold_of_image", "sigma_2", "fold", "fold_2"):
            assert np.array_equal(exported[name].values, read[name].values), name


def test_an_arm_with_a_window_of_its_own_is_written_with_what_is_left_of_it(tmp_path, capsys):
    data = synthetic.policy_store(signed_bias={"demote:56@0.5": (0.0, 0.0, 0.1, 0.1)}, sigmas=SIGMAS)
    for name in ("gram_policy", "gram_draw"):  # native below its window, to the bit
        values = data[name]
        for index in (0, 1):
            for dim, also in (("arm", "sigma"), ("arm_2", "sigma_2")):
                at = {dim: 1} | ({also: index} if also in values.dims else {"sigma": index})
                values[at] = values[at | {dim: 0}]
    store.write(tmp_path / "p.zarr", data, Provenance("", {}, Code("")))
    found = answer(capsys, tmp_path / "p.zarr", "--policy", "demote:56@0.5", "--policy", "demote:56@0.5@0.75")
    assert [policy["policy"] for policy in found["policies"]] == ["demote:56@0.5", "demote:56@0.75"]
    assert [policy["treated"] for policy in found["policies"]] == [pytest.approx(0.5), pytest.approx(0.25)]
