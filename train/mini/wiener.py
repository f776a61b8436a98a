"""The yardstick of the mini model: the best linear predictor of the velocity, frequency by frequency.

For a coefficient X of a clean crop (three colours at one spatial frequency) with mean m and covariance
S over the training crops, the linear predictor of v = noise - x0 with the smallest expected error is

    v_hat = -m + (sigma I - (1 - sigma) S) ((1 - sigma)^2 S + sigma^2 I)^-1 (x_sigma - (1 - sigma) m)

(the Wiener filter, N. Wiener 1949, with colours filtered jointly). A model that does not beat it has
learned no more about photographs than their power spectrum.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from analysis.atomic import replacing
from train.coupling import cosine_transform


def fourier_transform(side: int) -> Tensor:
    """Orthonormal DFT of one axis: [side, side], complex128."""
    return torch.fft.fft(torch.eye(side, dtype=torch.float64), norm="ortho")


BASES = {"cosine": cosine_transform, "fourier": fourier_transform}


@dataclass(frozen=True)
class Wiener:
    """axis: transform of one axis [S, S]; mean: [S, S, 3]; covariance: [S, S, 3, 3]; in float64 or complex128."""

    axis: Tensor
    mean: Tensor
    covariance: Tensor

    def velocity(self, x_sigma: Tensor, sigma: float) -> Tensor:
        """x_sigma [B, 3, S, S] -> velocity [B, 3, S, S], float64."""
        eye = torch.eye(3, dtype=self.covariance.dtype)
        of_x = (1 - sigma) ** 2 * self.covariance + sigma**2 * eye
        gain = (sigma * eye - (1 - sigma) * self.covariance) @ torch.linalg.inv(of_x)
        centred = coefficients(x_sigma, self.axis) - (1 - sigma) * self.mean
        predicted = torch.einsum("hwij,bhwj->bhwi", gain, centred) - self.mean
        back = self.axis.conj().T @ predicted.movedim(-1, 1) @ self.axis.conj()
        return back.real if back.is_complex() else back


def fit(x0: Tensor, basis: str) -> Wiener:
    """The filter of clean crops [N, 3, S, S] in the basis ``cosine`` or ``fourier``."""
    axis = BASES[basis](x0.shape[-1])
    count, total, second = len(x0), 0, 0
    for part in x0.split(500):
        c = coefficients(part, axis)
        total = total + c.sum(0)
        second = second + torch.einsum("bhwi,bhwj->hwij", c, c.conj())
    mean = torch.as_tensor(total) / count
    covariance = torch.as_tensor(second) / count - mean[..., :, None] * mean[..., None, :].conj()
    return Wiener(axis, mean, covariance)


def write(wiener: Wiener, path: Path) -> None:
    """Keep a filter of the cosine basis, as float32."""
    with replacing(path) as partial:
        tensors = {"mean": wiener.mean.float(), "covariance": wiener.covariance.float()}
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, partial)


def read(path: Path) -> Wiener:
    """The filter that ``write`` kept."""
    kept = load_file(path)
    mean, covariance = kept["mean"].double(), kept["covariance"].double()
    return Wiener(cosine_transform(mean.shape[0]), mean, covariance)


def coefficients(x: Tensor, axis: Tensor) -> Tensor:
    """[B, 3, S, S] -> [B, S, S, 3] in the basis of ``axis``."""
    return (axis @ x.to(axis.dtype) @ axis.T).movedim(1, -1)
