"""How many gradients `probes grad --until-resolved` saves on the mini model, from one sweep of fixed size.

python benchmarks/until_resolved.py [STORE]       # made here if it is not given: 5 sigmas, 40 images x 2 draws

Looks are taken on the first images of the store, which are those that a sweep would have stopped with.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

from analysis import store
from analysis.entry import exit_code
from analysis.sequential import Looks, Stopping
from probes.cli import app

MARGINS = (0.2, 0.3, 0.5, 1.0)
LOOKS = (4, 6)


def stops(data: xr.Dataset, stopping: Stopping) -> list[int]:
    """Images at which each sigma stops."""
    arms = data["arm"].values.tolist()
    counts = stopping.looks.counts
    found = []
    for index in range(data.sizes["sigma"]):
        cell = data.isel(sigma=index)
        image, draw = cell["gram_image"].values, cell["gram_draw"].values
        settled = [n for n in counts if stopping.settled(image[..., :n, :, :n], draw[:, :, :n], arms)]
        found.append(min([*settled, counts[-1]]))
    return found


def main() -> None:
    """One line for each margin, number of looks and arm that is waited for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "probe.zarr")
        if len(sys.argv) < 2:
            options = ["--images", "40", "--draws", "2", "--sigma-grid", "0.3:0.9:5", "--out", str(path)]
            if exit_code(app, ["grad", *options], name="probes"):
                sys.exit("the sweep failed")
        data = store.open_store(path).load()
    images, sigmas = data.sizes["image"], data.sizes["sigma"]
    print(f"{images} images x {data.sizes['draw']} draws, {sigmas} sigmas; images used, and gradients saved")
    treated = [arm for arm in data["arm"].values.tolist() if arm not in ("native", "redraw")]
    for arms in (*((arm,) for arm in treated), tuple(treated)):
        for margin in MARGINS:
            for number in LOOKS:
                used = stops(data, Stopping(Looks.equally_spaced(images, number), arms, margin))
                saved = 1.0 - np.sum(used) / (images * sigmas)
                print(f"{' '.join(arms):<36} margin {margin:<4g} {number} looks: {100 * saved:3.0f} % saved  {used}")


if __name__ == "__main__":
    main()
