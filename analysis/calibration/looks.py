"""How often are verdicts under repeated looks false, and how many images do they take?

    rates = simulate(case, Looks.equally_spaced(64, 4), repeats=4000, seed=0)
    rates["safe_relative"], rates["images_relative"]

A sweep grows image by image and is looked at on its way. A verdict counts as false if it is reached at any look, though
the sweep may end with another. `python -m analysis.calibration --looks 4` makes the table of docs/method.md.
"""

from collections.abc import Iterator

import numpy as np

from analysis import moments, verdict
from analysis.calibration.cases import RESOLUTIONS, Case, Spectra, grid, outstanding_grid
from analysis.calibration.simulate import first, questions, rates
from analysis.sequential import TOTAL, TOTALS, Looks
from analysis.synthetic import Draws, Planted

IMAGES_A_LOOK = (4, 6, 16)
"""Images that each look adds: as few as there may be, those of the default of ``probes grad``, and many."""


def simulate(case: Case, looks: Looks, *, repeats: int, seed: int) -> dict[str, float]:
    """Rates of ``safe_*`` and ``harmful_*`` at any look by rule, and ``images_*`` at the stop on average.

    With rho at the margin the rates are sizes.
    """

    def outcomes(case: Case, world: Planted, drawn: Draws, measured: moments.Moments) -> dict[str, np.ndarray]:
        return under_looks(case, world, drawn, measured, looks)

    return rates(case, outcomes, repeats=repeats, seed=seed)


def under_looks(
    case: Case, world: Planted, drawn: Draws, measured: moments.Moments, looks: Looks
) -> dict[str, np.ndarray]:
    """What each simulated sweep comes to, [repeat]. ``measured``: moments of all images."""
    ever: dict[str, np.ndarray] = {}
    for count in looks.counts:
        part = measured if count == looks.counts[-1] else first(drawn.gradients, count)
        for rule, question in questions(case, world, drawn, part).items():
            level = looks.level_of(TOTALS.get(rule, TOTAL))  # gap, which may stop no sweep, is tried at that of others
            found = verdict.decide(question, part.baseline, level=level).verdict[:, 0]
            used = ever.setdefault(f"images_{rule}", np.full(len(found), float(looks.counts[-1])))
            going = ~(ever.get(f"safe_{rule}", False) | ever.get(f"harmful_{rule}", np.zeros(len(found), bool)))
            used[going & (found != verdict.UNRESOLVED)] = count
            for name in (verdict.SAFE, verdict.HARMFUL):
                ever[f"{name}_{rule}"] = ever.get(f"{name}_{rule}", False) | (found == name)
    return ever


def look_grid(spectra: Spectra, looks: int) -> Iterator[Case]:
    """The worlds of the suite, measured by a population of images that grows.

    A bias across the leading directions is hardly ever called wrongly, so one design of it is enough.
    """
    designs = [*((each * looks, 1) for each in IMAGES_A_LOOK), (IMAGES_A_LOOK[1] * looks, 2)]
    yield from grid("images", spectra, designs, RESOLUTIONS, ["leading"])
    yield from grid("images", spectra, designs[1:2], RESOLUTIONS[1:2], ["across"])
    yield from outstanding_grid("images", designs[:2])
