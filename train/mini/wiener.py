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
from safetensors.torch import load_file
from torch import Tensor

from train import tensors_file
from train.coupling import cosine_transform

BASES = ("cosine", "fourier")


@dataclass(frozen=True)
class Wiener:
    """basis: of BASES; mean: [S, S, 3]; covariance: [S, S, 3, 3]; float64 (cosine) or complex128 (fourier)."""

    basis: str
    mean: Tensor
    covariance: Tensor

    def velocity(self, x_sigma: Tensor, sigma: float) -> Tensor:
        """x_sigma [B, 3, S, S] -> velocity [B, 3, S, S], float64."""
        eye = torch.eye(3, dtype=self.covariance.dtype)
        of_x = (1 - sigma) ** 2 * self.covariance + sigma**2 * eye
        gain = (sigma * eye - (1 - sigma) * self.covariance) @ torch.linalg.inv(of_x)
        centred = coefficients(x_sigma, self.basis) - (1 - sigma) * self.mean
        predicted = (torch.einsum("hwij,bhwj->bhwi", gain, centred) - self.mean).movedim(-1, 1)
        if self.basis == "fourier":
            return torch.fft.ifft2(predicted, norm="ortho").real
        axis = cosine_transform(x_sigma.shape[-1])
        return axis.T @ predicted @ axis


def fit(x0: Tensor, basis: str) -> Wiener:
    """The filter of clean crops [N, 3, S, S] in the basis ``cosine`` or ``fourier``."""
    count, total, second = len(x0), 0, 0
    for part in x0.split(500):
        c = coefficients(part, basis)
        total = total + c.sum(0)
        second = second + torch.einsum("bhwi,bhwj->hwij", c, c.conj())
    mean = torch.as_tensor(total) / count
    covariance = torch.as_tensor(second) / count - mean[..., :, None] * mean[..., None, :].conj()
    return Wiener(basis, mean, covariance)


def write(wiener: Wiener, path: Path) -> None:
    """Keep a filter of the cosine basis, as float32."""
    tensors_file.write(path, {"mean": wiener.mean.float(), "covariance": wiener.covariance.float()}, {})


def read(path: Path) -> Wiener:
    """The filter that ``write`` kept."""
    kept = load_file(path)
    mean, covariance = kept["mean"].double(), kept["covariance"].double()
    return Wiener("cosine", mean, covariance)


def coefficients(x: Tensor, basis: str) -> Tensor:
    """[B, 3, S, S] -> orthonormal coefficients [B, S, S, 3], float64 or complex128."""
    if basis == "fourier":
        return torch.fft.fft2(x.double(), norm="ortho").movedim(1, -1)
    axis = cosine_transform(x.shape[-1])
    return (axis @ x.double() @ axis.T).movedim(1, -1)
