"""p values that stay true however often, and for whatever reason, one stopped to look.

The repeated p value of a look (Jennison and Turnbull, Group Sequential Methods, 2000, chapter 9) is the smallest total
at which Pocock's rule would have stopped there: the chance that any look goes as far by chance alone.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy import interpolate, special

from analysis.sequential.boundary import crossing
from analysis.sequential.looks import Looks

if TYPE_CHECKING:
    import xarray as xr

SETTING = "until_resolved"
"""Of a store whose cells stopped by what had been seen."""
BOUNDS = np.linspace(-4.0, 9.0, 66)


def looks_of(dataset: "xr.Dataset") -> Looks | None:
    """The looks that a store's cells were stopped at; None for a sweep of a fixed size."""
    settings = json.loads(dataset.attrs.get("settings", "{}"))
    stopping = settings.get(SETTING)
    return None if stopping is None else Looks(tuple(stopping["looks"]))


def repeated_p(p_values: Float[np.ndarray, "*cells"], counts: Sequence[int]) -> Float[np.ndarray, "*cells"]:
    """Repeated p values from those of one look, for looks at ``counts`` images; NaN for NaN."""
    if len(counts) == 1:
        return p_values
    shares = [count / counts[-1] for count in counts]
    chances = np.log([crossing(float(bound), shares) for bound in BOUNDS])
    with np.errstate(divide="ignore"):
        bounds = -special.ndtri(p_values)
    inside = interpolate.PchipInterpolator(BOUNDS, chances)(np.clip(bounds, BOUNDS[0], BOUNDS[-1]))
    # Beyond the table no look is near another, and their chances add up.
    return np.where(bounds > BOUNDS[-1], len(counts) * p_values, np.exp(inside))
