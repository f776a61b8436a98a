"""`python -m analysis.calibration [REPEATS] [--looks K | --forecasts | --marks]`: what docs/method.md says of errors.

Worst sizes and coverages over the full grid, as a table; with ``--looks`` sizes under that many looks; with
``--forecasts`` how often forecasts of `probes plan` come true; with ``--marks`` how often intervals of marks hold the
truth. The fourth spectrum is that of the store given by `--store`, or of the mini model.
"""

import argparse
import sys

import numpy as np
import xarray as xr

from analysis import synthetic
from analysis.calibration import forecasts, looks, marks
from analysis.calibration.cases import Case, full_grid, power_laws
from analysis.calibration.simulate import simulate
from analysis.sequential import Looks

Row = tuple[Case, dict[str, float]]


def store_spectrum(path: str | None, parameters: int = 64) -> np.ndarray:
    """Spectrum of a probe store, or the kept one of the mini model."""
    if path is None:
        return synthetic.mini_spectrum()
    with xr.open_zarr(path, consolidated=False) as dataset:
        return synthetic.spectrum(dataset, parameters=parameters)


def table(rows: list[Row]) -> str:
    """Worst case of every rate, per population and tail, as Markdown."""
    lines = ["| rate | population | tails | worst | mean | worst case |", "|---|---|---|---|---|---|"]
    told = {name for _, rates in rows for name in rates if not name.startswith(("unresolved", "images"))}
    names = sorted(told, reverse=True)
    for name in names:
        for population in ("images", "corpus"):
            for tails, heavy in (("light", False), ("heavy", True)):
                held = [
                    (rates[name], case.name)
                    for case, rates in rows
                    if name in rates
                    and case.population == population
                    and (case.tail > 0.0) == heavy
                    and (case.relative_bias > 0.0 or name.startswith("coverage"))
                ]
                if held:
                    worst, where = min(held) if name.startswith("coverage") else max(held)
                    mean = np.mean([rate for rate, _ in held])
                    lines.append(f"| {name} | {population} | {tails} | {worst:.3f} | {mean:.3f} | {where} |")
    return "\n".join(lines)


def main() -> None:
    """Run the grid, progress on standard error, the table on standard output."""
    parser = argparse.ArgumentParser(prog="python -m analysis.calibration")
    parser.add_argument(
        "repeats", type=int, nargs="?", help="of each case; default: 4000, with --forecasts 15, with --marks 600"
    )
    parser.add_argument("--store", help="probe store to take the fourth spectrum from")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--looks", type=int, help="look this often, and stop when the verdict is settled")
    other.add_argument("--forecasts", action="store_true", help="pilots, and the sweeps that they ask for")
    other.add_argument("--marks", action="store_true", help="intervals of equivalent doses")
    arguments = parser.parse_args()
    if arguments.marks:
        print(marks.table(marks.coverage(repeats=arguments.repeats or 600)))
        return
    if arguments.forecasts:
        print(forecasts.table(forecasts.simulate(repeats=arguments.repeats or 15)))
        return
    repeats = arguments.repeats or 4000
    spectra = power_laws() | {"store" if arguments.store else "mini": store_spectrum(arguments.store)}
    number: int | None = arguments.looks
    cases = full_grid(spectra) if number is None else list(looks.look_grid(spectra, number))
    rows = []
    for index, case in enumerate(cases):
        if number is None:
            found = simulate(case, repeats=repeats, seed=index)
        else:
            at = Looks.equally_spaced(case.images, number)
            found = looks.simulate(case, at, repeats=repeats, seed=index)
        rows.append((case, found))
        print(f"\r{index + 1}/{len(cases)} {case.name:<80}", end="", file=sys.stderr)
    print(file=sys.stderr)
    print(table(rows))


main()
