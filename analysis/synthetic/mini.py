"""The spectrum of the shipped mini model's gradients, kept with the package so that calibration needs no sweep.

python -m analysis.synthetic.mini demo/probe.zarr      # takes it anew from a store that `make demo` made
"""

import sys
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.atomic import replacing
from analysis.synthetic.from_store import spectrum

KEPT = Path(__file__).with_name("mini_spectrum.csv")
PARAMETERS = 64
SIGMA = 0.6


def mini_spectrum() -> Float[np.ndarray, " parameter"]:
    """Eigenvalues, of sum 1 and descending, at sigma 0.6 of the demo's native arm."""
    return np.loadtxt(KEPT)


def take(store: Path) -> None:
    """Take it from ``store`` and keep it."""
    with xr.open_zarr(store, consolidated=False) as dataset:
        found = spectrum(dataset, sigma=SIGMA, parameters=PARAMETERS)
    with replacing(KEPT) as partial:
        np.savetxt(partial, found, fmt="%.9g")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
