"""The covariance spectrum of a real store's gradients, for planting worlds that look like it."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.base.spectrum import centred
from analysis.errors import UsageError


def spectrum(
    dataset: xr.Dataset,
    *,
    sigma: float | None = None,
    metric: str | None = None,
    arm: str = "native",
    parameters: int = 96,
) -> Float[np.ndarray, " parameter"]:
    """Eigenvalues, of sum 1, of the covariance over images of ``arm``'s gradients in all blocks together.

    n images show n - 1 eigenvalues, each too large by the noise of all those below it; the noise-reduction estimate
    lambda_i - (trace of the rest) / (n - 1 - i) (Yata and Aoshima 2012) takes that off, and the trace so freed is
    spread evenly over the remaining ``parameters``. ``sigma`` is the middle done cell by default.
    """
    done = dataset["sigma"].values[dataset["done"].values]
    if not done.size:
        raise UsageError("no cell of this store is done, so it has no spectrum")
    at = float(done[done.size // 2]) if sigma is None else sigma
    if at not in done:
        raise UsageError(f"sigma {at:g} is not a done cell of this store; it has {', '.join(f'{s:g}' for s in done)}")
    cell = dataset.sel(sigma=at, metric=dataset["metric"].values[0] if metric is None else metric)
    n = int(cell["images_used"])
    gram = cell["gram_image"].sel(arm=arm, arm_2=arm).sum("block").values[:n, :n]
    return noise_reduced(gram, parameters)


def noise_reduced(gram: Float[np.ndarray, "n n"], parameters: int) -> Float[np.ndarray, " parameter"]:
    """The spectrum behind one Gram matrix of n >= 4 vectors, of sum 1 and descending; ``parameters`` > n."""
    n = len(gram)
    if not 4 <= n < parameters:
        raise UsageError(f"a spectrum of {parameters} parameters needs between 4 and {parameters - 1} images, not {n}")
    observed = np.linalg.eigvalsh(centred(gram))[::-1][: n - 1] / (n - 1)
    rest = observed.sum() - np.cumsum(observed)
    left = np.arange(n - 2, -1, -1)
    leading = np.maximum(observed[:-1] - rest[:-1] / left[:-1], 0.0)
    bulk = (observed.sum() - leading.sum()) / (parameters - len(leading))
    values = np.sort(np.concatenate([leading, np.full(parameters - len(leading), max(bulk, 0.0))]))[::-1]
    return values / values.sum()
