"""Planted worlds and designs on which the method is tried, and the grids of them that the tests run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from jaxtyping import Float

from analysis.synthetic import Planted, power_law

MARGIN = 0.1
HEAVY = 0.7
"""Log standard deviation of per-image scales in the heavy-tailed worlds: a kurtosis 7 times the Gaussian's."""


@dataclass(frozen=True)
class Case:
    """One planted world and one design of the measurement.

    ``bias_resolution``  true |beta|^2 over the standard deviation of its estimate, at the margin
    ``mean_resolution``  the same for |mu|^2
    ``relative_bias``    rho, at the default margin if not given
    ``margin``           of the rule ``relative``; the other rules' margins are put where the truth is
    """

    population: str
    spectrum: Float[np.ndarray, " parameter"]
    images: int
    draws: int = 1
    direction: str = "leading"
    tail: float = 0.0
    bias_resolution: float = 3.0
    mean_resolution: float = 8.0
    relative_bias: float = MARGIN
    between: float = 0.3
    name: str = ""
    margin: float = MARGIN

    def world(self) -> Planted:
        """The world in which this design has the wanted resolutions."""
        values = self.spectrum / self.spectrum.sum()
        # Noise of the estimate comes from images, or within images from their draws alone.
        share = 1.0 if self.population == "images" else (1.0 - self.between) / self.draws
        typical = float((values**2).sum())
        half = len(values) // 2
        along = {"leading": values[0], "across": values[half:].mean()}.get(self.direction, typical)
        noise = _noise_for(self.mean_resolution, 1.0, typical, typical, self.images) / share
        disturbance = _noise_for(self.bias_resolution, self.margin**2, float(along), typical, self.images) / share
        return Planted(
            self.spectrum,
            noise_scale=noise,
            between=self.between,
            difference=float(np.sqrt(disturbance / noise)),
            relative_bias=self.relative_bias,
            direction=self.direction,
            tail=self.tail,
        )


def _noise_for(resolution: float, square: float, along: float, typical: float, units: int) -> float:
    """Trace s of a unit's covariance such that square / sd is ``resolution``.

    sd^2 = 4 square s along / n + 2 s^2 typical / n^2, with ``along`` the share of s that lies along the vector and
    ``typical`` the trace of the squared covariance of trace 1.
    """
    quadratic, linear = 2.0 * typical / units**2, 4.0 * square * along / units
    return float((-linear + np.sqrt(linear**2 + 4.0 * quadratic * (square / resolution) ** 2)) / (2.0 * quadratic))


Spectra = dict[str, Float[np.ndarray, " parameter"]]
RESOLUTIONS = ((1.5, 8.0), (3.0, 8.0), (6.0, 3.0))
"""(bias, mean) resolutions of the grids: hardly measurable, measurable, and a weak baseline; they bracket where false
verdicts are most frequent."""
Resolutions = Sequence[tuple[float, float]]


def power_laws(parameters: int = 64) -> Spectra:
    """The three standard spectra."""
    return {
        "flat": power_law(0.0, parameters),
        "1/k": power_law(1.0, parameters),
        "1/k2": power_law(2.0, parameters),
    }


def outstanding(parameters: int = 600, ratio: float = 50.0) -> Float[np.ndarray, " parameter"]:
    """One direction of ``ratio`` times the variance of each of very many others.

    A bias along it is called safe most easily: most of the noise lies elsewhere, and does not show how uncertain it is.
    """
    return np.concatenate([[ratio], np.ones(parameters - 1)])


def outstanding_grid(population: str, designs: Sequence[tuple[int, int]]) -> Iterator[Case]:
    """The bias along the one direction, and hardly measurable, which is worst; heavy tails make it harmless."""
    return grid(population, {"outstanding": outstanding()}, designs, [(1.0, 8.0), (1.5, 8.0)], ["leading"], [0.0])


def grid(
    population: str,
    spectra: Spectra,
    designs: Sequence[tuple[int, int]],
    resolutions: Resolutions = RESOLUTIONS,
    directions: Sequence[str] = ("leading", "across"),
    tails: Sequence[float] = (0.0, HEAVY),
) -> Iterator[Case]:
    """Every combination; ``designs`` are (images, draws)."""
    for (name, spectrum), direction, tail in product(spectra.items(), directions, tails):
        for (images, draws), (bias, mean) in product(designs, resolutions):
            label = f"{population} n={images} D={draws} {name} {direction} tail={tail:g} resolution={bias:g}/{mean:g}"
            yield Case(population, spectrum, images, draws, direction, tail, bias, mean, name=label)


def full_grid(spectra: Spectra) -> list[Case]:
    """What the documentation's table is made of."""
    hard = RESOLUTIONS[:2]
    steep = {name: values for name, values in spectra.items() if name != "flat"}
    grids = (
        grid("images", spectra, [(4, 1), (8, 1)]),
        grid("images", spectra, [(24, 1)], hard),
        grid("images", spectra, [(96, 1)], hard[:1]),
        grid("images", steep, [(8, 2)], hard[1:]),
        grid("corpus", spectra, [(4, 4)]),
        grid("corpus", spectra, [(20, 4), (8, 8)], hard[1:]),
        grid("corpus", steep, [(20, 4), (8, 8)], hard[:1]),
    )
    planted = [case for part in grids for case in part]
    # The same design without any bias, for the coverage of figures about nothing.
    nothing = [
        replace(case, relative_bias=0.0, name=case.name + " no bias")
        for case in grid("images", spectra, [(8, 1)], hard[:1])
    ]
    return [
        *planted,
        *nothing,
        # Where per-image squares of heavy tails mislead most.
        *grid("images", spectra, [(24, 2)], RESOLUTIONS[1:], ["leading"]),
        *outstanding_grid("images", [(8, 1), (24, 1)]),
        *outstanding_grid("corpus", [(8, 4), (20, 4)]),
    ]
