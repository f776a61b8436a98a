"""Arms with a known answer, through the whole instrument: sweep, store, estimates, verdicts."""

import numpy as np
import pytest
from scipy import stats

from analysis import store
from analysis.entry import exit_code
from analysis.safety import assess
from probes.cli import DEFAULT_ARMS, app

pytestmark = pytest.mark.usefixtures("determinism_put_back")


def swept(path, *arguments):
    """The store of ``probes grad`` with ``arguments``, read."""
    assert exit_code(app, ["grad", *map(str, arguments), "--out", str(path)], name="probes") == 0
    return store.open_store(path).load()


@pytest.fixture(scope="module")
def gained(tmp_path_factory):
    return swept(
        tmp_path_factory.mktemp("gain") / "p.zarr", "--sigma-grid", "0.4,0.9", "--images", 6, "--draws", 4,
        "--arm", "gain:1.05", "--metric", "raw", "--metric", "weight",
    )  # fmt: skip


@pytest.mark.parametrize("population", ["images", "corpus"])
def test_a_gain_reads_back_and_turns_nothing(gained, population):
    found = assess(gained, population=population, margin=0.2).sel(arm="gain:1.05")
    resolved = found.gain.notnull()
    assert resolved.sum() >= 4
    assert np.abs(found.gain.values[resolved] - 0.05).max() <= 1e-6
    assert np.abs(found.turn_squared.values[resolved]).max() <= 1e-10


@pytest.mark.slow
def test_the_demo_says_what_is_known_of_its_arms(tmp_path):
    """repromote:56 is harmful at some sigma and safe at the top; demote:48 has more bias than demote:56 at most."""
    data = swept(tmp_path / "p.zarr", "--sigma-grid", "0.3:0.9")
    total = assess(data, margin=0.2).sel(metric="raw", block="total")
    assert list(data.arm.values[1:]) == DEFAULT_ARMS
    back = total.verdict.sel(arm="repromote:56")
    assert (back == "harmful").any()
    assert back.sel(sigma=0.9) == "safe"
    squared = total.bias_squared if "bias_squared" in total else total.relative_bias_squared
    more = squared.sel(arm="demote:48") > squared.sel(arm="demote:56")
    assert more.mean() > 0.5


@pytest.mark.slow
def test_redraw_misses_zero_as_often_as_it_should(tmp_path):
    """20 seeds x 13 sigma: the share of 95 % intervals that miss 0 is not above 5 % (99 % confidence, seeds as units).

    Draws are shared by the sigma of a store, so cells of one seed are not independent.
    """
    misses = []
    for seed in range(20):
        arguments = ("--sigma-grid", "0.3:0.9", "--images", 10, "--draws", 2, "--arm", "redraw", "--seed", seed)
        found = assess(swept(tmp_path / f"{seed}.zarr", *arguments), margin=0.2).sel(metric="raw", block="total")
        lower, upper = found.lower.sel(arm="redraw"), found.upper.sel(arm="redraw")
        misses.append(float(((lower > 0) | (upper < 0)).mean()))
    spread = np.std(misses, ddof=1) / len(misses) ** 0.5
    assert np.mean(misses) - stats.t.ppf(0.99, 19) * spread <= 0.05
