"""What a policy's steps cost beside native ones, from measured seconds or from tokens."""

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.errors import UsageError
from analysis.policy.grammar import own_window

COSTS = ("seconds", "tokens")


def costs(dataset: xr.Dataset, cost: str, baseline: str) -> Float[np.ndarray, "sigma arm"]:
    """Seconds of an arm's gradients at each sigma, or image tokens of one: native ones outside an arm's own window."""
    if cost == "seconds":
        found = dataset["seconds"].transpose("sigma", "arm").values
        if not (found > 0).all():
            raise UsageError("cost seconds: this store has none for some arm and sigma; take --cost tokens")
        return found
    if cost != "tokens":
        raise UsageError(f"cost {cost!r} is not one of {', '.join(COSTS)}")
    arms, tokens = dataset["arm"].values.tolist(), dataset["tokens"].mean("image")
    native = float(tokens.sel(arm=baseline))
    windows = [own_window(arm) if "," not in arm else (0.0, 1.0) for arm in arms]
    sigmas = dataset["sigma"].values
    inside = np.stack([(lo < sigmas) & (sigmas <= hi) for lo, hi in windows], -1)
    return np.where(inside, tokens.values, native)


def speed_up(
    weights: Float[np.ndarray, "policy sigma arm"], costs: Float[np.ndarray, "sigma arm"], baseline: int
) -> Float[np.ndarray, " policy"]:
    """Expected cost of a native step over that of a policy's step, both under the sampler."""
    native = weights.sum(-1) @ costs[:, baseline]
    # Rounded, so that policies of one cost are equally fast whatever the order of their sums.
    return np.round(native / (weights * costs).sum((1, 2)), 12)
