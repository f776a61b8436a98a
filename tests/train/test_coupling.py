"""Couplings are white on the new grid, exactly and in samples, and change spread alone."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from analysis.errors import UsageError
from train.coupling import COUPLINGS, area_matrix, axis_matrix, coupling, low_frequency_matrix, white_area_matrix
from train.crn import normal

MATRICES = [white_area_matrix, low_frequency_matrix]
RATIOS = [(64, 56), (64, 48), (64, 32), (15, 11), (9, 8), (33, 7), (128, 127)]
GRIDS = [((16, 24), (14, 21)), ((9, 13), (7, 13)), ((8, 10), (4, 5)), ((14, 9), (16, 12)), ((12, 9), (9, 11))]


def fresh_from(seed: int):
    return lambda shape: normal(shape, seed=seed, purpose="fresh noise")


def never(shape: tuple[int, ...]) -> torch.Tensor:
    raise AssertionError("no fresh noise is needed here")


def correlation_of_neighbours(covariance: torch.Tensor) -> torch.Tensor:
    scale = covariance.diagonal().sqrt()
    return (covariance / scale[:, None] / scale).diagonal(1)


def dense_covariance(name: str, old: tuple[int, int], new: tuple[int, int]) -> np.ndarray:
    """Covariance of the coupled draw, from its response to every unit draw, in float32: [H'W', H'W']."""
    inputs, outputs = old[0] * old[1], new[0] * new[1]
    units = torch.eye(inputs).reshape(inputs, *old)
    from_native = COUPLINGS[name].couple(units, new, lambda shape: torch.zeros(shape))
    xi = torch.eye(outputs).reshape(outputs, *new)
    from_fresh = COUPLINGS[name].couple(torch.zeros(outputs, *old), new, lambda shape: xi)
    response = torch.cat([from_native.reshape(inputs, -1), from_fresh.reshape(outputs, -1)]).double().numpy()
    return response.T @ response


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize(("large", "small"), RATIOS)
def test_rows_are_orthonormal(matrix, large, small):
    p = matrix(large, small)
    assert p.shape == (small, large)
    assert p.dtype == torch.float64
    assert (p @ p.T - torch.eye(small, dtype=torch.float64)).abs().max() < 1e-12


@given(small=st.integers(1, 80), extra=st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_rows_are_orthonormal_for_any_sides(small, extra):
    for matrix in MATRICES:
        p = matrix(small + extra, small)
        assert (p @ p.T - torch.eye(small, dtype=torch.float64)).abs().max() < 1e-12


@pytest.mark.parametrize(("large", "small"), RATIOS)
def test_area_matrix_against_a_loop(large, small):
    a = area_matrix(large, small)
    step = Fraction(large, small)
    for i in range(small):
        for j in range(large):
            covered = max(Fraction(0), min((i + 1) * step, Fraction(j + 1)) - max(i * step, Fraction(j)))
            assert a[i, j].item() == float(covered / step)


def test_area_coupling_is_the_polar_factor():
    """P = (A A^T)^(-1/2) A, by another route; no rotation of it lies nearer to A."""
    a, p = area_matrix(64, 56).numpy(), white_area_matrix(64, 56).numpy()
    eigenvalues, eigenvectors = np.linalg.eigh(a @ a.T)
    np.testing.assert_allclose(p, (eigenvectors * eigenvalues**-0.5) @ eigenvectors.T @ a, atol=1e-13)
    rotation, _ = np.linalg.qr(np.eye(56) + 0.1 * np.random.default_rng(0).standard_normal((56, 56)))
    assert np.linalg.norm(a - p) < np.linalg.norm(a - rotation @ p)


def test_halving_by_area_is_the_mean_of_pairs():
    """At 2:1 area resizing has orthogonal rows already: white noise is the pair mean times root 2."""
    noise = normal((3, 8, 8), seed=0, purpose="noise")
    halved = coupling("area").couple(noise, (4, 8), never)
    torch.testing.assert_close(halved, noise.reshape(3, 4, 2, 8).mean(2) * 2**0.5)


def test_dct_coupling_keeps_the_low_frequencies():
    """Against scipy's transform of both grids."""
    from scipy.fft import dctn

    noise = normal((2, 12, 10), seed=0, purpose="noise").double()
    cut = coupling("dct").couple(noise.float(), (9, 7), never).double()
    spectrum = dctn(noise.numpy(), axes=(1, 2), norm="ortho")[:, :9, :7]
    np.testing.assert_allclose(dctn(cut.numpy(), axes=(1, 2), norm="ortho"), spectrum, atol=1e-6)


@pytest.mark.parametrize("name", COUPLINGS)
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_covariance_is_the_identity(name, old, new):
    """Down, up, and one axis up while the other goes down; the coupled draw itself is float32."""
    covariance = dense_covariance(name, old, new)
    assert np.abs(covariance - np.eye(len(covariance))).max() < 1e-6


@pytest.mark.parametrize("matrix", MATRICES)
def test_completed_covariance_in_float64(matrix):
    """Growing: Q Q^T + (I - Q Q^T)(I - Q Q^T)^T = I."""
    for small, large in ((56, 64), (7, 15), (32, 64)):
        q = matrix(large, small).T
        rest = torch.eye(large, dtype=torch.float64) - q @ q.T
        assert (q @ q.T + rest @ rest.T - torch.eye(large, dtype=torch.float64)).abs().max() < 1e-12


def test_growing_is_the_formula_per_axis():
    q = white_area_matrix(8, 6).T
    noise, xi = normal((6, 5), seed=0, purpose="noise").double(), fresh_from(1)((8, 5)).double()
    expected = q @ noise + xi - q @ (q.T @ xi)
    torch.testing.assert_close(coupling("area").couple(noise.float(), (8, 5), fresh_from(1)), expected.float())


def test_down_again_gives_the_draw_back():
    """The grown draw holds the native one: P of the way back undoes Q."""
    noise = normal((2, 12, 14), seed=0, purpose="noise")
    for name in ("area", "dct"):
        grown = coupling(name).couple(noise, (16, 15), fresh_from(1))
        torch.testing.assert_close(coupling(name).couple(grown, (12, 14), never), noise, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", COUPLINGS)
@pytest.mark.parametrize("new", [(56, 56), (48, 48), (32, 32), (43, 51), (72, 60)])
def test_samples_are_white(name, new):
    """300 draws of 64 x 64: mean 0, variance 1, no neighbour correlation, within 4.5 standard errors."""
    noise = normal((300, 64, 64), seed=3, purpose="noise")
    out = coupling(name).couple(noise, new, fresh_from(4)).double()
    error = out.numel() ** -0.5
    assert abs(out.mean()) < 4.5 * error
    assert abs(out.square().mean() - 1) < 4.5 * 2**0.5 * error
    for neighbours in (out[:, 1:] * out[:, :-1], out[:, :, 1:] * out[:, :, :-1], out[:, 1:, 1:] * out[:, :-1, :-1]):
        assert abs(neighbours.mean()) < 4.5 * error


def test_plain_area_resizing_is_coloured():
    """At 8:7 torch's area resizing correlates neighbours by 0.43, exact fractional overlap by 0.22."""
    by_torch = F.interpolate(torch.eye(64, dtype=torch.float64)[:, None], size=56, mode="area")[:, 0].T
    assert correlation_of_neighbours(by_torch @ by_torch.T).mean() == pytest.approx(0.43, abs=0.01)
    a, p = area_matrix(64, 56), white_area_matrix(64, 56)
    assert correlation_of_neighbours(a @ a.T).mean() == pytest.approx(0.22, abs=0.01)
    assert correlation_of_neighbours(p @ p.T).abs().max() < 1e-12
    resized = F.interpolate(normal((300, 1, 64, 64), seed=3, purpose="noise"), size=(56, 56), mode="area")
    assert (resized[..., 1:] * resized[..., :-1]).mean() / resized.square().mean() == pytest.approx(0.43, abs=0.02)


def test_couplings_change_the_spread_not_the_expectation():
    """A non-linear answer on the small grid against one on the native grid: same mean, other spread."""
    draws = 4000
    noise = normal((draws, 16, 16), seed=5, purpose="noise")

    def answer(x: torch.Tensor) -> torch.Tensor:
        """A smooth picture's response: its lowest frequency, through an exponential."""
        wave = low_frequency_matrix(x.shape[-1], 2)[1].float()
        return torch.exp(0.3 * (wave @ x @ wave))

    difference = {
        name: (answer(c.couple(noise, (14, 14), fresh_from(6))) - answer(noise)).double()
        for name, c in COUPLINGS.items()
    }
    for name in COUPLINGS:  # both answers have the mean exp(0.3^2 / 2)
        assert abs(difference[name].mean()) < 4 * difference[name].std() / draws**0.5, name
    assert difference["area"].std() < 0.1 * difference["independent"].std()
    assert difference["dct"].std() < 0.1 * difference["independent"].std()


def test_leading_axes_pass_through():
    noise = normal((2, 3, 4, 16, 12), seed=0, purpose="noise")
    out = coupling("area").couple(noise, (14, 9), never)
    assert out.shape == (2, 3, 4, 14, 9)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out[1, 2, 3], coupling("area").couple(noise[1, 2, 3], (14, 9), never))


def test_the_same_grid_returns_the_draw_to_the_bit():
    noise = normal((3, 9, 9), seed=0, purpose="noise")
    for name in ("area", "dct"):
        assert torch.equal(coupling(name).couple(noise, (9, 9), never), noise)
    assert not torch.equal(coupling("independent").couple(noise, (9, 9), fresh_from(1)), noise)


def test_matrices_are_computed_once():
    assert axis_matrix(white_area_matrix, 64, 56) is axis_matrix(white_area_matrix, 64, 56)


def test_unknown_coupling():
    with pytest.raises(UsageError, match=r"'bilinear': takes area, dct, independent"):
        coupling("bilinear")
