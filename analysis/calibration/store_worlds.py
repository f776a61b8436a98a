"""Planted worlds with the spectrum, the noise and the design of a probe store."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis import moments
from analysis.base import spectrum, ustatistic
from analysis.calibration.cases import Case, grid
from analysis.errors import UsageError
from analysis.synthetic import Planted
from analysis.synthetic.from_store import noise_reduced

FEWEST_PARAMETERS = 64
BIAS_FACTORS = (0.0, 0.5, 2.0)
"""True biases at which power is told, over the margin."""


@dataclass(frozen=True)
class StoreCell:
    """One sigma of a store in the sum over blocks, at one metric: Gram arrays [arm, n, arm, n] and of draws."""

    arms: list[str]
    baseline: str
    sigma: float
    gram_image: Float[np.ndarray, "arm n arm_2 n"]
    gram_draw: Float[np.ndarray, "n arm draw arm_2 draw"]

    @property
    def images(self) -> int:
        return self.gram_image.shape[1]

    @property
    def draws(self) -> int:
        return self.gram_draw.shape[2]

    @property
    def treated(self) -> list[str]:
        return [arm for arm in self.arms if arm != self.baseline]


def store_cell(dataset: xr.Dataset, *, sigma: float | None, metric: str | None, baseline: str) -> StoreCell:
    """The cell at ``sigma``, the middle done one by default. UsageError for what is not in the store."""
    done = dataset["sigma"].values[dataset["done"].values]
    if not done.size:
        raise UsageError("no cell of this store is done; resume the sweep that writes it")
    at = float(done[done.size // 2]) if sigma is None else sigma
    nearest = float(done[np.abs(done - at).argmin()])
    if abs(nearest - at) > 1e-9:
        raise UsageError(f"sigma {at:g} is not a done cell of this store; it has {', '.join(f'{s:g}' for s in done)}")
    for given, name in ((metric, "metric"), (baseline, "arm")):
        held = dataset[name].values.tolist()
        if given is not None and given not in held:
            raise UsageError(f"{name} {given!r} is not in this store; it has {', '.join(held)}")
    cell = dataset.sel(sigma=nearest, metric=dataset["metric"].values[0] if metric is None else metric)
    n = int(cell["images_used"])
    image = cell["gram_image"].values[:, :, :n, :, :n].sum(0)
    return StoreCell(dataset["arm"].values.tolist(), baseline, nearest, image, cell["gram_draw"].values[:, :n].sum(0))


@dataclass(frozen=True)
class DesignCase(Case):
    """A case whose resolutions are those of an image's mean over this many draws, for a population of images too."""

    def world(self) -> Planted:
        """The world in which this design has the wanted resolutions."""
        planted = super().world()
        if self.population == "corpus":
            return planted
        share = self.between + (1.0 - self.between) / self.draws
        return replace(planted, noise_scale=planted.noise_scale / share)


@dataclass(frozen=True)
class MeasuredCase(Case):
    """A case in the world that an arm of a store shows.

    ``noise_scale``, ``difference``, ``correlation``  as in ``Planted``
    """

    noise_scale: float = 1.0
    difference: float = 1.0
    correlation: float = 0.0

    def world(self) -> Planted:
        """That world, with light tails."""
        return Planted(
            self.spectrum,
            noise_scale=self.noise_scale,
            between=self.between,
            difference=self.difference,
            correlation=self.correlation,
            relative_bias=self.relative_bias,
            direction=self.direction,
        )


def size_cases(cell: StoreCell, population: str, margin: float) -> list[DesignCase]:
    """The suite's worlds at the store's design and its baseline's spectrum, the truth at the margin."""
    place = cell.arms.index(cell.baseline)
    values = noise_reduced(cell.gram_image[place, :, place], parameters(cell.images))
    cases = grid(population, {"store": values}, [(cell.images, cell.draws)])
    held = [{entry.name: getattr(case, entry.name) for entry in fields(case)} for case in cases]
    return [DesignCase(**{**case, "relative_bias": margin, "margin": margin}) for case in held]


def power_cases(cell: StoreCell, population: str, margin: float, arm: str) -> Iterator[MeasuredCase]:
    """One arm's world with a true bias of each of ``BIAS_FACTORS`` times the margin.

    The disturbance has the size that this arm's has in the store, and its spectrum. UsageError where the baseline's
    mean gradient is not above its noise, so that no noise scale can be told, or the arm makes the baseline's step.
    """
    places = {"baseline": cell.arms.index(cell.baseline), "arms": [cell.arms.index(arm)]}
    part = moments.images(cell.gram_image, cell.gram_draw, **places)
    square = float(part.baseline.value[0])
    if not square > 0.0:
        raise UsageError(f"the mean gradient of {cell.baseline} is not told from zero at sigma {cell.sigma:g}")
    if not _trace(part.bias_gram[0]) > 0.0:
        raise UsageError(f"{arm} makes the step of {cell.baseline} at sigma {cell.sigma:g}, or one without noise")
    total = float(part.noise_baseline.value[0])
    native, delta = part.baseline_gram[0], part.bias_gram[0]
    noises = (_trace(delta), _trace(native)) if population == "images" else (_within(cell, arm), _within(cell, None))
    correlation = _trace(_mixed(cell, arm)) / np.sqrt(_trace(native) * _trace(delta))
    base = MeasuredCase(
        population,
        noise_reduced(delta, parameters(cell.images)),
        cell.images,
        cell.draws,
        direction="mixed",
        between=_between(cell, total),
        noise_scale=total / square,
        difference=float(np.sqrt(noises[0] / noises[1])),
        correlation=float(np.clip(correlation, -1.0, 1.0)),
        margin=margin,
    )
    for factor in BIAS_FACTORS:
        yield replace(base, relative_bias=factor * margin, name=f"{population} {arm} bias {factor:g} of the margin")


def parameters(images: int) -> int:
    """How many parameters a planted world has; more than images, since a Gram matrix of n shows n - 1 eigenvalues."""
    return max(FEWEST_PARAMETERS, 2 * images)


def _trace(gram: Float[np.ndarray, "n n"]) -> float:
    """Trace of the covariance over images of what ``gram`` holds the inner products of."""
    return float(np.trace(spectrum.centred(gram)) / (len(gram) - 1))


def _within(cell: StoreCell, arm: str | None) -> float:
    """Mean over images of the trace of the covariance over draws."""
    base = cell.arms.index(cell.baseline)
    draw = cell.gram_draw[:, base, :, base]
    if arm is not None:
        place = cell.arms.index(arm)
        cross = cell.gram_draw[:, base, :, place]
        draw = cell.gram_draw[:, place, :, place] - cross - cross.swapaxes(-1, -2) + draw
    squares = np.diagonal(draw, axis1=-2, axis2=-1).mean()
    return float(squares - ustatistic.same_image(draw).mean())


def _between(cell: StoreCell, total: float) -> float:
    """Share of a sample's noise that lies between images; the suite's own where one draw cannot tell."""
    if cell.draws < 2 or total <= 0.0:
        return Case.between
    return float(np.clip(1.0 - _within(cell, None) / total, 0.0, 1.0))


def _mixed(cell: StoreCell, arm: str) -> np.ndarray:
    """Inner products of images' differences with images' baselines."""
    base, place = cell.arms.index(cell.baseline), cell.arms.index(arm)
    return cell.gram_image[place, :, base] - cell.gram_image[base, :, base]
