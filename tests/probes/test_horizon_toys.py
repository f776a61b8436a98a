"""Rollouts of systems whose answers are known: SGD on a quadratic, which is linear, and a chaotic map."""

from math import log, sqrt

import numpy as np
import pytest

from analysis.horizon.answer import assess
from analysis.horizon.reach import End
from probes.horizon import ladder, measured


class Quadratic:
    """SGD on curvature (theta - centre)^2 / 2; the treatment adds ``pull`` to the gradient."""

    def __init__(self, seed, curvature=0.3, rate=0.1):
        rng = np.random.default_rng(seed)
        self.start, self.centre, self.pull = rng.standard_normal((3, 20))
        self.jitter = np.random.default_rng(seed + 1000).standard_normal((9, 20))
        self.curvature, self.rate = curvature, rate

    def begin(self, branch):
        self.theta = self.start * (1 + 1e-6 * self.jitter[branch.jitter] * bool(branch.jitter))

    def advance(self, step, branch):
        gradient = self.curvature * (self.theta - self.centre) + branch.dose * self.pull
        self.theta = self.theta - self.rate * gradient
        return True

    def position(self):
        return {"first": self.theta[:12].copy(), "second": self.theta[12:].copy()}


def test_sgd_on_a_quadratic_separates_as_its_closed_form_says_and_never_bends():
    systems = {seed: Quadratic(seed) for seed in range(3)}
    climbed = ladder("1/8,1/4,1/2,1", jitters=8, size=1e-6, steps="64")
    answer = assess(measured(systems, climbed))
    shrink = 1 - 0.1 * 0.3
    for place, system in enumerate(systems.values()):
        for step in climbed.steps:
            moved = np.linalg.norm((shrink**step - 1) * (system.start - system.centre))
            summed = 0.1 * (1 - shrink**step) / (1 - shrink)
            for name, dose in climbed.doses.items():
                expected = summed * dose * np.linalg.norm(system.pull) / moved
                found = answer.figures["separation"].sel(block="total", arm=name, step=step).values[place]
                assert found == pytest.approx(expected, rel=1e-9)
    assert (answer.figures["nonlinearity"].values < 1e-6).all()
    assert answer.reaches["total"]["1"].horizon == answer.reaches["second"]["1/4"].horizon == End(64, True)
    assert answer.saturated["1"] is None
    assert answer.growth is not None
    assert answer.growth.rate == pytest.approx(log(shrink), rel=1e-6)
    assert answer.figures["treated"].values.tolist() == [list(climbed.steps)] * 3


class CatMap:
    """Arnold's cat map on 16 tori, seen as points on circles; the treatment pushes every step by ``push``.

    Everything grows by (3 + sqrt 5) / 2 a step until it goes round.
    """

    def __init__(self, seed, push=1e-7):
        rng = np.random.default_rng(seed)
        self.start, self.push = rng.random((2, 16)), push * rng.standard_normal((2, 16))
        self.jitter = 1e-9 * np.random.default_rng(seed + 1000).standard_normal((9, 2, 16))

    def begin(self, branch):
        self.at = self.start + (self.jitter[branch.jitter] if branch.jitter else 0.0)

    def advance(self, step, branch):
        self.at = (np.array([[2, 1], [1, 1]]) @ self.at + branch.dose * self.push) % 1.0
        return True

    def position(self):
        angle = 2 * np.pi * self.at.reshape(-1)
        return {"circles": np.concatenate([np.cos(angle), np.sin(angle)])}


def test_a_chaotic_map_grows_by_its_lyapunov_exponent_bends_and_saturates():
    exponent, push = log((3 + sqrt(5)) / 2), 1e-7
    steps = ",".join(map(str, range(1, 41)))
    climbed = ladder("1/4,1/2,1", jitters=8, size=1e-9, steps=steps)
    answer = assess(measured({seed: CatMap(seed, push) for seed in range(3)}, climbed))
    assert answer.growth is not None
    assert answer.growth.rate == pytest.approx(exponent, rel=1e-3)
    assert answer.growth.error < 1e-3
    assert answer.growth.fitted[0] is not None
    assert answer.growth.fitted[0][1] == pytest.approx(log(0.14 / 1e-9) / exponent, abs=3)
    # The ruler bends when the push has grown to a tenth of a turn or so, and saturates a few steps later.
    bends = log(0.1 / push) / exponent
    horizon = answer.reaches["total"]["1"].horizon
    assert not horizon.open
    assert horizon.step == pytest.approx(bends, abs=2.5)
    assert answer.saturated["1"] is not None
    assert horizon.step < answer.saturated["1"] <= horizon.step + 6
    half = answer.reaches["total"]["1/2"].horizon
    assert half.step - horizon.step in (0, 1)
    last = answer.figures.isel(step=-1).sel(block="total", dose="1")
    assert last["length_ratio"].values == pytest.approx(0.5, abs=0.1)
    assert (last["nonlinearity"].values > 0.8).all()
