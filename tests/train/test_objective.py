import torch

from train.objective import interpolate, squared_error, velocity_target


def test_the_equations_element_by_element():
    g = torch.Generator().manual_seed(0)
    x0, noise, answer = (torch.randn(2, 3, 4, 5, generator=g) for _ in range(3))
    sigma = torch.tensor([0.25, 1.0])
    x_sigma, target = interpolate(x0, noise, sigma), velocity_target(x0, noise)
    loss = squared_error(answer, target)
    for b in range(2):
        total = 0.0
        for at in torch.cartesian_prod(*(torch.arange(n) for n in (3, 4, 5))).tolist():
            x, e, s = float(x0[b][tuple(at)]), float(noise[b][tuple(at)]), float(sigma[b])
            assert abs(float(x_sigma[b][tuple(at)]) - ((1 - s) * x + s * e)) < 1e-6
            total += (float(answer[b][tuple(at)]) - (e - x)) ** 2 / 60
        assert abs(float(loss[b]) - total) < 1e-5


def test_the_step_from_the_exact_velocity_lands_on_the_next_level():
    g = torch.Generator().manual_seed(1)
    x0, noise = torch.randn(2, 1, 3, 4, 4, generator=g)
    v = velocity_target(x0, noise)
    here, there = torch.tensor([0.8]), torch.tensor([0.3])
    stepped = interpolate(x0, noise, here) + (there - here) * v
    assert torch.allclose(stepped, interpolate(x0, noise, there), atol=1e-6)


def test_the_loss_of_half_precision_is_in_float32():
    assert squared_error(torch.zeros(1, 4, dtype=torch.bfloat16), torch.ones(1, 4)).dtype == torch.float32
