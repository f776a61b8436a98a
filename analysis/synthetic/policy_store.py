"""A probe store with inner products across sigma whose policies have known biases.

    data = policy_store(signed_bias={"demote:56": [0.3, -0.3]}, sigmas=[0.25, 0.75])

The mean gradient m is the same at every sigma, |m| = 1, and so is the direction of an arm's bias, across m; only the
bias's size differs, and its sign. So a run that takes the arm where sigma is in T has relative bias
|sum over T of p(sigma) signed_bias(sigma)|: signs that alternate cancel across sigma, equal ones add up.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.contract import ARRAYS
from analysis.policy.folds import fold_means, fold_of_images
from analysis.policy.material import FEWEST_UNITS
from analysis.schema import described
from analysis.synthetic.planted import power_law
from analysis.synthetic.probe_store import as_dataset, gram_arrays

PARAMETERS = 48


def policy_store(
    *,
    signed_bias: Mapping[str, float | Sequence[float]],
    sigmas: Sequence[float],
    blocks: Sequence[str] = ("block_0", "block_1"),
    images: int = 24,
    draws: int = 4,
    noise_scale: float = 1.0,
    difference: float = 0.2,
    shared: float = 0.5,
    seconds: Mapping[str, float] | None = None,
    fixed_corpus: bool = False,
    seed: int = 0,
) -> xr.Dataset:
    """Arms ``native`` and those of ``signed_bias``, whose values are one for all sigma or one for each.

    noise_scale: S / |m|^2 of a sample at one sigma, half of it between images; difference: of a treated arm's own
    noise to that; shared: the share of noise that a sample has at every sigma alike, as common random numbers give.
    seconds: of an arm's gradients (default 1). fixed_corpus: the biases are those of these very images.
    """
    generator = np.random.default_rng(seed)
    biases = [np.zeros(len(sigmas)), *(np.broadcast_to(value, len(sigmas)) for value in signed_bias.values())]
    arms = ["native", *signed_bias]
    fold = fold_of_images(images)
    cells: dict[str, list[np.ndarray]] = {"gram_image": [], "gram_draw": [], "gram_cross": []}
    across: dict[str, list[np.ndarray]] = {"gram_policy": [], "gram_policy_corpus": []}
    for _ in blocks:
        noise = _noise(generator, len(sigmas), len(arms), images, draws, shared, difference, fixed_corpus)
        directions = np.linalg.qr(generator.standard_normal((PARAMETERS, 1 + len(arms))))[0].T
        mean = directions[0] + np.stack([np.outer(b, directions[1 + at]) for at, b in enumerate(biases)], 1)
        samples = mean[:, :, None, None] + np.sqrt(noise_scale) * noise
        for name, array in zip(cells, gram_arrays(samples), strict=True):
            cells[name].append(array)
        units = np.stack([fold_means(at.mean(2), fold) for at in samples]), samples.mean(2)
        for name, unit in zip(across, units, strict=True):
            flat = unit.reshape(-1, PARAMETERS)
            across[name].append((flat @ flat.T).reshape(*unit.shape[:3], *unit.shape[:3]))
    lead = (1, len(sigmas), len(blocks))
    arrays = {name: np.stack(parts, 1).reshape(*lead, *parts[0].shape[1:]) for name, parts in cells.items()}
    dataset = as_dataset(arrays, arms, list(sigmas), list(blocks), ["raw"], True, generator)
    taken = [(seconds or {}).get(arm, 1.0) for arm in arms]
    dataset["seconds"] = (dataset["seconds"].dims, np.tile(taken, (len(sigmas), 1)), dataset["seconds"].attrs)
    return described(_with_policy(dataset, across, fold))


def _noise(
    generator: np.random.Generator,
    sigmas: int,
    arms: int,
    images: int,
    draws: int,
    shared: float,
    difference: float,
    fixed_corpus: bool,
) -> Float[np.ndarray, "sigma arm image draw parameter"]:
    """Of trace 1 for the baseline; a treated arm has the baseline's and ``difference`` times its own."""
    scale = np.sqrt(power_law(1.0, PARAMETERS))

    def of(*lead: int) -> np.ndarray:
        """Noise between images and within them, equal shares."""
        between = generator.standard_normal((*lead, images, 1, PARAMETERS))
        if fixed_corpus:
            between = between - between.mean(-3, keepdims=True)
        return np.sqrt(0.5) * scale * (between + generator.standard_normal((*lead, images, draws, PARAMETERS)))

    native = np.sqrt(shared) * of(1, 1) + np.sqrt(1 - shared) * of(sigmas, 1)
    own = np.sqrt(shared) * of(1, arms) + np.sqrt(1 - shared) * of(sigmas, arms)
    own[:, 0] = 0.0
    return native + difference * own


def _with_policy(dataset: xr.Dataset, across: Mapping[str, list[np.ndarray]], fold: np.ndarray) -> xr.Dataset:
    """``dataset`` with the arrays of Eq. 6; those over draws where there are enough."""
    folds = np.arange(fold.max() + 1)
    dataset = dataset.assign_coords(sigma_2=dataset["sigma"].values, fold=folds, fold_2=folds)
    dataset["fold_of_image"] = ("image", fold)
    for name, grams in across.items():
        if name == "gram_policy" or dataset.sizes["draw"] >= FEWEST_UNITS:
            dataset[name] = (ARRAYS[name].dims, np.stack(grams)[None])
    return dataset
