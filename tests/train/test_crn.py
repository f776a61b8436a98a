import torch

from train.crn import generator, normal, uniform


def test_a_draw_depends_on_its_name_alone():
    before = normal((4,), seed=0, purpose="noise", index=("a", 1))
    torch.manual_seed(7)
    torch.randn(3)
    assert torch.equal(before, normal((4,), seed=0, purpose="noise", index=("a", 1)))


def test_every_part_of_the_name_counts():
    draws = [
        normal((8,), seed=0, purpose="noise", index=("a", 1)),
        normal((8,), seed=1, purpose="noise", index=("a", 1)),
        normal((8,), seed=0, purpose="redraw", index=("a", 1)),
        normal((8,), seed=0, purpose="noise", index=("a", 2)),
        normal((8,), seed=0, purpose="noise", index=("a1",)),
        normal((8,), seed=0, purpose="noise", index=("a", "1")),
    ]
    assert len({draw.numpy().tobytes() for draw in draws}) == len(draws)


def test_draws_leave_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    normal((5,), seed=0, purpose="noise")
    uniform((5,), seed=0, purpose="sigma")
    generator(0, "order")
    assert torch.equal(torch.randn(2), expected)


def test_draws_of_neighbouring_streams_are_unrelated_and_standard():
    draws = torch.stack([normal((1000,), seed=0, purpose="noise", index=("image", d)) for d in range(30)])
    correlation = torch.corrcoef(draws) - torch.eye(30)
    assert correlation.abs().max() < 5 / 1000**0.5
    assert abs(float(draws.mean())) < 5 / 30_000**0.5
    assert abs(float(draws.var()) - 1) < 5 * (2 / 30_000) ** 0.5
