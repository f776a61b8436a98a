import numpy as np
import pytest
import torch

from train.step_uniforms import STEPS, step_uniforms


def table(steps, samples=3, seed=0, purpose="sigma"):
    return step_uniforms(steps, samples, seed=seed, purpose=purpose)


def test_a_number_depends_on_its_step_and_sample_alone():
    whole = table(range(3 * STEPS))
    assert whole.shape == (3 * STEPS, 3)
    for start, stop in [(0, 1), (5, 6), (STEPS - 1, STEPS + 1), (STEPS, 2 * STEPS), (700, 2500)]:
        assert np.array_equal(table(range(start, stop)), whole[start:stop])
    assert np.array_equal(table(range(10), samples=8)[:, :3], whole[:10])


def test_seed_purpose_and_sample_each_give_other_numbers():
    of = [
        table(range(STEPS)),
        table(range(STEPS, 2 * STEPS)),
        table(range(STEPS), seed=1),
        table(range(STEPS), purpose="placement"),
    ]
    columns = np.concatenate(of, axis=1).T
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 5 / STEPS**0.5


def test_numbers_are_uniform_and_leave_the_global_generators_alone():
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    numbers = table(range(30_000)).ravel()
    assert torch.equal(torch.randn(2), expected)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    share = np.histogram(numbers, bins=20, range=(0, 1))[0] / len(numbers)
    assert np.abs(share - 0.05).max() < 5 * (0.05 * 0.95 / len(numbers)) ** 0.5


@pytest.mark.parametrize("steps", [range(0), range(0, 10, 2), range(-1, 3)])
def test_steps_that_are_not_a_run_of_steps_are_an_error(steps):
    with pytest.raises(ValueError, match="consecutive"):
        table(steps)


def test_what_is_handed_out_can_be_written_to_without_harm():
    first = table(range(4))
    kept = first.copy()
    first[:] = 0
    assert np.array_equal(table(range(4)), kept)
