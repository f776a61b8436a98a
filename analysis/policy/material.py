"""What a store holds for policies, of one metric and one population."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.base.gram_matrix import is_gram
from analysis.errors import UsageError

FEWEST_UNITS = 8


@dataclass(frozen=True)
class Material:
    """Inner products of unit means at all sigma and arms; a unit is a fold of images, or a draw of the whole corpus.

    k counts (sigma, arm), the arm fastest. ``squares``: each unit's mean |g|^2 of single samples. ``of_unit``: how many
    images are in a unit, or 1 draw.
    """

    arms: tuple[str, ...]
    sigmas: tuple[float, ...]
    blocks: tuple[str, ...]
    baseline: int
    grams: Float[np.ndarray, "block k n k n"]
    squares: Float[np.ndarray, "block k n"]
    of_unit: float

    @property
    def units(self) -> int:
        return self.grams.shape[-1]

    @cached_property
    def total(self) -> Float[np.ndarray, "k n k n"]:
        """The sum over blocks."""
        return self.grams.sum(0)

    @cached_property
    def idle(self) -> np.ndarray:
        """[sigma, arm]: whether an arm's gradients are those of the baseline to the bit, all blocks together."""
        shape = (len(self.sigmas), len(self.arms))
        native = np.repeat(np.arange(shape[0]) * shape[1] + self.baseline, shape[1])
        every = np.arange(len(native))
        own, of_native = self.grams[:, every, :, every], self.grams[:, native, :, native]
        same = (own == of_native) & (self.grams[:, every, :, native] == of_native)
        return same.all((1, 2, 3)).reshape(shape)


def load(dataset: xr.Dataset, *, baseline: str = "native", metric: str | None = None, population: str) -> Material:
    """Read it. UsageError for a store without it, which says how to make one."""
    name, draws = "gram_policy", dataset.sizes["draw"]
    if name not in dataset:
        raise UsageError(
            "this store holds no inner products across sigma (gram_policy): make one by `probes grad --policy`, "
            "with the same options and another --out"
        )
    if population == "corpus":
        name = "gram_policy_corpus"
        if name not in dataset:
            raise UsageError(
                f"population corpus needs {FEWEST_UNITS} draws or more for a policy and this store has {draws}; probe "
                f"again with --policy --draws {FEWEST_UNITS}, or ask for --population images"
            )
    arms, metrics = dataset["arm"].values.tolist(), dataset["metric"].values.tolist()
    if baseline not in arms:
        raise UsageError(f"baseline {baseline!r} is not an arm of this store; it has {', '.join(arms)}")
    chosen = metrics[0] if metric is None else metric
    if chosen not in metrics:
        raise UsageError(f"metric {chosen!r} is not in this store; it has {', '.join(metrics)}")
    gram = dataset[name].sel(metric=chosen).values
    if not np.isfinite(gram).all():
        raise UsageError(f"array {name} is not finite: make the store again by `probes grad --policy`")
    blocks, sigmas, a, n = gram.shape[:4]
    check_whole(dataset, name, gram.reshape(blocks, sigmas * a * n, sigmas * a * n))
    squares = _squares(dataset, chosen, population)
    return Material(
        arms=tuple(arms),
        sigmas=tuple(dataset["sigma"].values.tolist()),
        blocks=tuple(dataset["block"].values.tolist()),
        baseline=arms.index(baseline),
        grams=gram.reshape(blocks, sigmas * a, n, sigmas * a, n),
        squares=squares.reshape(blocks, sigmas * a, n),
        of_unit=dataset.sizes["image"] / n if population == "images" else 1.0,
    )


def check_whole(dataset: xr.Dataset, name: str, gram: Float[np.ndarray, "block m m"]) -> None:
    """UsageError where these are no inner products of one set of vectors, or not of the store's folds and cells."""
    again = "make the store again by `probes grad --policy`"
    if not dataset["done"].values.all():
        raise UsageError(f"this store has cells that are not done: let its sweep finish, or {again}")
    if not is_gram(gram):
        raise UsageError(f"array {name} holds no inner products, it is damaged: {again}")
    folds = dataset["fold_of_image"].values
    if name == "gram_policy" and not np.array_equal(np.unique(folds), np.arange(dataset.sizes["fold"])):
        raise UsageError(f"array fold_of_image does not name the {dataset.sizes['fold']} folds, it is damaged: {again}")


def _squares(dataset: xr.Dataset, metric: str, population: str) -> Float[np.ndarray, "block sigma arm n"]:
    """Mean |g|^2 over a unit's samples, from the diagonal of Eq. 5, one sigma at a time."""
    found = []
    for index in range(dataset.sizes["sigma"]):
        gram = dataset["gram_draw"].sel(metric=metric).isel(sigma=index).values
        square = np.einsum("biadad->baid", gram)
        if population == "images":
            fold = dataset["fold_of_image"].values
            of_image = square.mean(-1)
            found.append(np.stack([of_image[..., fold == unit].mean(-1) for unit in range(fold.max() + 1)], -1))
        else:
            found.append(square.mean(-2))
    return np.stack(found, 1)
