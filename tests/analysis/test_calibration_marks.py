"""Simulated coverage of marks: every world is tried, and what counts as covering."""

from dataclasses import replace

import numpy as np

from analysis import synthetic
from analysis.calibration import marks


def test_every_world_is_tried_and_intervals_cover_in_it() -> None:
    rates = marks.coverage(repeats=60)
    worlds = {"jitter": 0, "multiple": 0}
    for (name, _, _), found in rates.items():
        worlds[name] += len(found)
    assert worlds == {"jitter": 24, "multiple": 36}
    light = [share for (_, _, tails), found in rates.items() for share, _ in found if tails == "light"]
    assert np.mean(light) > 0.93
    assert min(light) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / 60)
    assert marks.table(rates).count("\n") == 1 + len(rates)


def test_unresolved_intervals_make_no_claim_and_count_as_covering() -> None:
    world = synthetic.Planted(synthetic.power_law(1.0, 12), noise_scale=1.0, difference=0.1)
    drawn = marks.draw(world, "corpus", 8, 4, repeats=4, seed=0)
    ((_, found, truth),) = marks.figures(world, "corpus", drawn)
    assert truth == (0.3 / 0.1) ** 2
    told = replace(found, lower=np.array([0.5, 2.0, np.nan, 0.0]), upper=np.array([1.5, 3.0, np.nan, 0.5]))
    assert marks.covered(told, 1.0) == (0.5, 0.25)
