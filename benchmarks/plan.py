"""How often a forecast of `probes plan` comes true on the mini model.

    python benchmarks/plan.py                     # 160 crops of 10 photographs at sigma 0.75, about 480 gradients
    python benchmarks/plan.py --store STORE       # a sweep of that kind which is there already

Pilots are drawn at random from the crops. A forecast says how many settle the verdict with a chance of 80 %, and is
tried on as many: the pilot's and more. Forecasts of more than three quarters of the crops are left out, since every
such sweep is nearly the same one. The cases of one sweep share its crops, so other crops (--seed) give another share.
"""

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy starts

import numpy as np
import xarray as xr

from analysis import moments, store, verdict
from analysis.calibration.forecasts import CHANCE, outlook
from analysis.entry import exit_code
from probes.cli import app
from train.mini.photographs import IN_WHEELS, crop, photographs

CROPS, LARGEST_SHARE = 160, 0.75
MARGINS = (0.1, 0.2, 0.4, 0.8)
PILOTS = (10, 20)  # crops


def sweep(folder: Path, seed: int) -> Path:
    """A store of random crops of the photographs that come inside wheels."""
    generator = np.random.default_rng(seed)
    there = [p for split in ("corpus", "train") for p in photographs(split) if p.package in IN_WHEELS]
    pictures = [p.open(Path()) for p in there if importlib.util.find_spec(IN_WHEELS[p.package])]
    order = [i % len(pictures) for i in range(CROPS)]
    generator.shuffle(order)
    corpus, out = folder / "crops", folder / "probe.zarr"
    corpus.mkdir()
    for place, i in enumerate(order):
        crop(pictures[i], generator).save(corpus / f"{place:03d}.png")
    words = ["--latents", corpus, "--images", CROPS, "--draws", 1, "--sigma-grid", 0.75, "--out", out]
    words += ["--arm", "demote:56", "--arm", "repromote:48"]
    if exit_code(app, ["grad", *map(str, words)], name="probes"):
        sys.exit("the sweep failed")
    return out


def tried(data: xr.Dataset, pilot: int, repeats: int) -> tuple[int, int, int, int]:
    """Forecasts that came true, those tried, open verdicts with a forecast, open verdicts."""
    cell = data.isel(metric=0, sigma=0)
    image, draw = (cell[name].sum("block").values for name in ("gram_image", "gram_draw"))
    generator, arms = np.random.default_rng(0), list(range(1, data.sizes["arm"]))

    def of(units: np.ndarray) -> moments.Moments:
        return moments.images(image[:, units][:, :, :, units], draw[units], baseline=0, arms=arms)

    true = told = with_forecast = still_open = 0
    for _ in range(repeats):
        order = generator.permutation(data.sizes["image"])
        part = of(order[:pilot])
        for margin in MARGINS:
            unresolved = verdict.decide(verdict.relative(part, margin), part.baseline).verdict == verdict.UNRESOLVED
            factors = outlook(part, margin).factor(CHANCE)
            still_open += int(unresolved.sum())
            with_forecast += int((unresolved & np.isfinite(factors)).sum())
            for at in np.flatnonzero(unresolved & (pilot * factors <= LARGEST_SHARE * len(order))):
                larger = of(order[: int(np.ceil(pilot * factors[at] - 1e-6))])
                settled = verdict.decide(verdict.relative(larger, margin), larger.baseline).verdict[at]
                true, told = true + int(settled != verdict.UNRESOLVED), told + 1
    return true, told, with_forecast, still_open


def main() -> None:
    """A line for each size of pilot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="Of the crops.")
    parser.add_argument("--repeats", type=int, default=40)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = store.open_store(given.store or sweep(Path(folder), given.seed)).load()
    for pilot in PILOTS:
        true, told, with_forecast, still_open = tried(data, pilot, given.repeats)
        print(
            f"{given.repeats} pilots of {pilot} crops: {100 * true / max(1, told):.0f} % of {told} forecasts came true "
            f"(asked for: {100 * CHANCE:.0f} %); {with_forecast} of {still_open} open verdicts had a forecast"
        )


if __name__ == "__main__":
    main()
