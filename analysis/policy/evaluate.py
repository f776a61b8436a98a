"""From a policy's weights to its moments, figures and verdicts: the estimators of a cell, with the fold as the unit."""

from collections.abc import Iterator

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis import forecast, verdict
from analysis.base import spectrum
from analysis.moments import Moments, Pairs, over_units
from analysis.policy.material import Material
from analysis.safety import figures
from analysis.schema import TOTAL

AT_ONCE = 128  # policies; their products take 8 n^2 k bytes each

Weights = Float[np.ndarray, "policy sigma arm"]


def moments(material: Material, weights: Weights, *, every_block: bool) -> Moments:
    """Moments [block + total, policy] of the expected training gradient, or [total, policy]; all under one sampler."""
    shares = weights.sum(-1)
    if not np.allclose(shares, shares[0]):
        raise ValueError("the policies' weights are not those of one sampler: their sums over arms differ")
    native = np.zeros((len(material.sigmas), len(material.arms)))
    native[:, material.baseline] = shares[0]
    native = native.ravel()
    weights = without_idle(material, weights).reshape(len(weights), -1)
    parts, native_squares, squares = [], [], []
    for gram, square in _per_block(material, every_block=every_block):
        parts.append(contracted(gram, native, weights - native))
        squares.append(weights @ square)
        native_squares.append(np.broadcast_to(native @ square, squares[-1].shape))
    stacked = (np.stack([part[which] for part in parts]) for which in range(4))
    first, cross, treated, delta = stacked
    return over_units((first, cross, treated, delta), np.stack(native_squares), np.stack(squares))


def without_idle(material: Material, weights: Weights) -> Weights:
    """The same mixture with the baseline in place of arms that equal it to the bit, so that no rounding is left."""
    moved = np.where(material.idle, weights, 0.0)
    moved[..., material.baseline] = 0.0
    found = weights - moved
    found[..., material.baseline] += moved.sum(-1)
    return found


def contracted(
    gram: Float[np.ndarray, "k n k n"], native: Float[np.ndarray, " k"], change: Float[np.ndarray, "policy k"]
) -> Pairs:
    """Gram matrices over units of Eq. 31: of the native run, across, of the policy, of their difference.

    change: the policy's weights less the native ones.
    """
    k, n = gram.shape[:2]
    of_native = (native @ gram.reshape(k, -1)).reshape(n, k, n)
    first = np.einsum("nkm,k->nm", of_native, native)
    across, delta = [], []
    for start in range(0, len(change), AT_ONCE):
        some = change[start : start + AT_ONCE]
        product = (some @ gram.reshape(k, -1)).reshape(len(some), n, k, n)
        delta.append(np.einsum("pnkm,pk->pnm", product, some))
        across.append(np.einsum("nkm,pk->pnm", of_native, some))
    difference, mixed = np.concatenate(delta), np.concatenate(across)
    mixed = 0.5 * (mixed + mixed.swapaxes(-1, -2))
    first = np.broadcast_to(first, mixed.shape)
    return first, first + mixed, first + 2.0 * mixed + difference, difference


def assessed(
    material: Material, names: list[str], weights: Weights, *, every_block: bool, rule: str, margin: float | None
) -> xr.Dataset:
    """Figures [block, policy], blocks as in ``safety.assess``; with a ``margin`` verdicts too, each policy alone."""
    part = moments(material, weights, every_block=every_block)
    found = figures(part)
    if margin is not None:
        found |= verdicts(material, part, rule, margin)
    blocks = [*material.blocks, TOTAL] if every_block else [TOTAL]
    variables = {name: (("block", "policy"), values) for name, values in found.items()}
    return xr.Dataset(variables, {"block": blocks, "policy": names})


def verdicts(material: Material, part: Moments, rule: str, margin: float) -> dict[str, np.ndarray]:
    """As of a cell; ``units_needed`` in images, or draws of the corpus."""
    question = verdict.RULES[rule](part, margin)
    decided = verdict.decide(question, part.baseline)
    contrast = decided.contrast
    spread = np.where(contrast.value < 0.0, decided.variance_safe, decided.variance_harmful)
    pairs = np.zeros_like(spread) if question.gram is None else spectrum.pair_variance(question.gram)
    needed = forecast.units_needed(contrast.value, spread, pairs, decided.degrees, material.units)
    squares = np.diagonal(part.bias_gram, axis1=-2, axis2=-1)
    idle = np.broadcast_to((squares == 0.0).all(-1)[-1], decided.verdict.shape)
    unresolved = (decided.verdict == verdict.UNRESOLVED) & ~idle
    return {
        "p_safe": np.where(idle, np.nan, decided.p_safe),
        "p_harmful": np.where(idle, np.nan, decided.p_harmful),
        "verdict": np.where(idle, verdict.INACTIVE, decided.verdict),
        "units_needed": np.where(unresolved, np.ceil(needed * material.of_unit), np.nan),
    }


def _per_block(material: Material, *, every_block: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(gram, squares) of each block, if they are asked for, then of their sum."""
    if every_block:
        yield from zip(material.grams, material.squares, strict=True)
    yield material.total, material.squares.sum(0)
