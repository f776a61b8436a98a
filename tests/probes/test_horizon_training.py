"""The trainer's step as a horizon's system: gradients of a dose, and a start that is moved a little."""

import numpy as np
import pytest
import torch

from probes.horizon.command import prepared, system_of
from probes.horizon.ladder import Branch
from probes.horizon.settings import resolve

pytestmark = pytest.mark.usefixtures("determinism_put_back")


@pytest.fixture
def system(tiny_flux):
    """A cold start on a Flux of two blocks, whose first factors are not zero."""
    given = {"model": str(tiny_flux(16, 3)), "rank": 2, "arm": "repromote:8@0.3", "learning_rate": 0.01}
    ladder = {"doses": "1/4,1/2,1", "jitters": 8, "jitter_size": 1e-3, "steps": "4"}
    settings = resolve(given, config=None, start="cold", seeds=1, **ladder)
    return system_of(settings, *prepared(settings), 0)


def test_a_dose_mixes_the_native_and_the_treated_gradient(system):
    step = int(system.treated.schedule.treated.argmax())
    system.begin(Branch("any"))
    found = {}
    for dose in (0.0, 0.25, 1.0):
        norm = system.mixed(step, dose)
        found[dose] = {name: p.grad.double().clone() for name, p in system.native.parameters.items()}
        assert norm == pytest.approx(float(torch.cat([g.flatten() for g in found[dose].values()]).norm()), rel=1e-5)
    moved = [name for name in found[0.0] if not torch.equal(found[0.0][name], found[1.0][name])]
    assert moved
    for name in moved:
        expected = 0.75 * found[0.0][name] + 0.25 * found[1.0][name]
        assert torch.allclose(found[0.25][name], expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_a_jitter_moves_what_is_not_zero_by_its_relative_size_and_begins_anew(system):
    def position():
        return np.concatenate(list(system.position().values())).astype(float)

    system.begin(Branch("baseline"))
    start = position()
    moves = []
    for number in (1, 2, 1):
        system.begin(Branch(f"jitter {number}", jitter=number))
        moves.append((position() - start)[start != 0] / start[start != 0])
        assert not position()[start == 0].any()
    assert np.std(moves[0]) == pytest.approx(1e-3, rel=0.1)
    assert abs(np.mean(moves[0])) < 3e-4
    assert np.array_equal(moves[0], moves[2])
    assert abs(np.corrcoef(moves[0], moves[1])[0, 1]) < 0.2
    system.begin(Branch("baseline"))
    assert np.array_equal(position(), start)
