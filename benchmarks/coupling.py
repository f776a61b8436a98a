"""Draws that coupled noise saves: `python benchmarks/coupling.py [--sigma-grid 0.3:0.9:5]`.

The same demotion under the three couplings, on the mini model and exactly its corpus. Each gives the arm N(0, I) noise,
so all estimate one bias; they differ in how far an estimate from a few draws spreads. Reported: the squared
standard error of the relative bias under independent noise over that under each coupling, which is how many times more
draws independent noise needs for the same error ("draws saved" is one minus its inverse).
"""

import argparse
import tempfile
from pathlib import Path

from analysis import store
from analysis.safety import assess
from probes.grad import Settings, probe

COUPLINGS = ("area", "dct", "independent")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sigma-grid", default="0.3:0.9:5")
    parser.add_argument("--tier", default="56")
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--draws", type=int, default=6)
    asked = parser.parse_args()
    arms = tuple(f"demote:{asked.tier}+noise:{coupling}" for coupling in COUPLINGS)
    settings = Settings(
        sigma_grid=asked.sigma_grid, arms=arms, images=asked.images, draws=asked.draws, metrics=("raw",), engine="func",
        chunk=24, attention="sdpa", model="mini", latents=None, adapter=None, rank=4, seed=0,
        jobs=None, threads=None, memory=4.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coupling.zarr"
        probe(settings, path, dry_run=False, json=False)
        found = assess(store.open_store(path).load(), population="corpus", rule="relative", margin=0.2)
    total = found.sel(metric="raw", block="total")
    print(f"demote:{asked.tier}, {asked.images} images x {asked.draws} draws, population corpus")
    print("sigma   " + "   ".join(f"{coupling:>20}" for coupling in COUPLINGS) + "   draws saved (area, dct)")
    for sigma in total.sigma.values:
        at = total.sel(sigma=sigma)
        shown = [(float(at.relative_bias_squared.sel(arm=arm)), float(at.standard_error.sel(arm=arm))) for arm in arms]
        saved = [1 - (error / shown[2][1]) ** 2 for _, error in shown[:2]]
        cells = "   ".join(f"{bias:+9.4f} ± {error:8.4f}" for bias, error in shown)
        print(f"{sigma:5.3f}   {cells}   " + ", ".join(f"{share:.0%}" for share in saved))


if __name__ == "__main__":
    main()
