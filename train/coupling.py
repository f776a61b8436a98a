"""Noise across grids: the same draw, white on a smaller or a larger grid (docs/method.md, section 3).

Resizing noise colours it: neighbouring pixels become correlated, which a model sees and which would
pass for a treatment. A matrix P with orthonormal rows does not: with one P per axis,
P_h noise P_w^T is exactly white. Couplings differ in P alone, so each gives N(0, I) on the new grid;
they change how tightly an arm is tied to the native draw, never what it estimates.

    smaller = coupling("area").couple(noise, (56, 48), fresh)  # noise: [..., 64, 64]
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor

from analysis.errors import UsageError

AxisMatrix = Callable[[int, int], Tensor]


def area_matrix(large: int, small: int) -> Float[Tensor, "small large"]:
    """Plain area resizing of one axis: the fraction of each new cell that an old cell covers; rows sum to 1.

    Its rows overlap, so it colours noise whenever ``small`` does not divide ``large``.
    """
    new, old = torch.arange(small)[:, None], torch.arange(large)
    # Whole numbers: both grids measured in units of 1 / (large small) of the axis.
    overlap = torch.minimum((new + 1) * large, (old + 1) * small) - torch.maximum(new * large, old * small)
    return overlap.clamp_min(0).double() / large


def white_area_matrix(large: int, small: int) -> Float[Tensor, "small large"]:
    """P = U V^T from the singular value decomposition of the area matrix (its polar factor).

    The matrix with orthonormal rows nearest to area resizing (Fan and Hoffman, 1955).
    """
    u, _, vt = torch.linalg.svd(area_matrix(large, small), full_matrices=False)
    return u @ vt


def cosine_transform(side: int) -> Float[Tensor, "side side"]:
    """Orthonormal DCT-II: row k is the cosine of frequency k."""
    frequency, cell = torch.arange(side, dtype=torch.float64)[:, None], torch.arange(side, dtype=torch.float64)
    rows = torch.cos(pi * (cell + 0.5) * frequency / side) * (2 / side) ** 0.5
    rows[0] /= 2**0.5
    return rows


def low_frequency_matrix(large: int, small: int) -> Float[Tensor, "small large"]:
    """P of the ``small`` lowest frequencies: DCT of the old axis, cut, and the inverse DCT of the new one."""
    return cosine_transform(small).T @ cosine_transform(large)[:small]


@dataclass(frozen=True)
class Coupling:
    """How noise of one grid becomes noise of another.

    matrix: (large, small) -> P [small, large] in float64, orthonormal rows; None draws anew.
    """

    name: str
    matrix: AxisMatrix | None

    def couple(
        self, noise: Float[Tensor, "*batch h w"], shape: tuple[int, int], fresh: Callable[[tuple[int, ...]], Tensor]
    ) -> Float[Tensor, "*batch h_new w_new"]:
        """White float32 noise [*batch, *shape] tied to ``noise``; leading axes pass through, float64 inside.

        Shrinking axes come first: P_h noise P_w^T. Growing axes then: Q_h noise Q_w^T + xi - Pi_h xi Pi_w
        with Q = P^T of the way back, Pi = Q Q^T (the identity along an axis that does not grow): for one
        axis this is Q noise + (I - Q Q^T) xi. ``fresh``: shape -> standard normal xi from a stream of its
        own, called only when it is needed; ``noise`` itself comes back when the grid is the same.
        """
        old = (noise.shape[-2], noise.shape[-1])
        if self.matrix is None:
            return fresh((*noise.shape[:-2], *shape)).float()
        if shape == old:
            return noise.float()
        shrink = [
            axis_matrix(self.matrix, was, now) if now < was else None for was, now in zip(old, shape, strict=True)
        ]
        grow = [
            axis_matrix(self.matrix, now, was).T if now > was else None for was, now in zip(old, shape, strict=True)
        ]
        white = along_axes(noise.double(), shrink)
        if any(q is not None for q in grow):
            xi = fresh((*noise.shape[:-2], *shape)).to(white)
            lost = along_axes(xi, [None if q is None else q @ q.T for q in grow])
            white = along_axes(white, grow) + xi - lost
        return white.float()


@lru_cache(maxsize=64)
def axis_matrix(matrix: AxisMatrix, large: int, small: int) -> Tensor:
    """``matrix(large, small)``, computed once; not to be written to."""
    return matrix(large, small)


def along_axes(x: Float[Tensor, "*batch h w"], matrices: list[Tensor | None]) -> Float[Tensor, "*batch h_new w_new"]:
    """M_h x M_w^T; None is the identity."""
    over_h, over_w = matrices
    if over_h is not None:
        x = over_h.to(x.device) @ x
    return x if over_w is None else x @ over_w.T.to(x.device)


COUPLINGS = {
    c.name: c
    for c in (
        Coupling("area", white_area_matrix),
        Coupling("dct", low_frequency_matrix),
        Coupling("independent", None),
    )
}


def coupling(name: str) -> Coupling:
    """The coupling called ``name``."""
    if name not in COUPLINGS:
        raise UsageError(f"noise coupling {name!r}: takes {', '.join(COUPLINGS)}")
    return COUPLINGS[name]
