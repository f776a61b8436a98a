"""`python -m analysis.calibration [REPEATS]`: what docs/method.md says of errors.

Worst sizes and coverages over the full grid, as a table. Instead of it, with ``--looks K`` sizes under so many looks;
with ``--without`` what verdicts would err without one part of their variance; with ``--marks`` how often intervals of
marks hold the truth; with ``--forecasts`` how often forecasts of `probes plan` come true, and with ``--detects`` how
often a bias that it calls detected is. The fourth spectrum is that of the store given by `--store`, or of the mini
model.
"""

import argparse
import sys

import numpy as np
import xarray as xr

from analysis import synthetic
from analysis.calibration import ablations, detects, forecasts, looks, marks
from analysis.calibration.cases import Case, Spectra, full_grid, power_laws
from analysis.calibration.simulate import simulate
from analysis.sequential import Looks

DEFAULTS = "4000; with --without 1000, --marks 600, --forecasts 15, --detects 400"
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
    """Run what was asked for, progress on standard error, the table on standard output."""
    parser = argparse.ArgumentParser(prog="python -m analysis.calibration")
    parser.add_argument("repeats", type=int, nargs="?", help=f"of each case; default: {DEFAULTS}")
    parser.add_argument("--store", help="probe store to take the fourth spectrum from")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--looks", type=int, help="look this often, and stop when the verdict is settled")
    other.add_argument("--without", action="store_true", help="verdicts without one part of their variance")
    other.add_argument("--marks", action="store_true", help="intervals of equivalent doses")
    other.add_argument("--forecasts", action="store_true", help="pilots, and the sweeps that they ask for")
    other.add_argument("--detects", action="store_true", help="biases of the size that pilots call detected")
    arguments = parser.parse_args()
    spectra = power_laws() | {"store" if arguments.store else "mini": store_spectrum(arguments.store)}
    if arguments.without:
        print(ablations.table(ablations.simulate(spectra, repeats=arguments.repeats or 1000)))
    elif arguments.marks:
        print(marks.table(marks.coverage(repeats=arguments.repeats or 600)))
    elif arguments.forecasts:
        print(forecasts.table(forecasts.simulate(repeats=arguments.repeats or 15)))
    elif arguments.detects:
        print(detects.table(detects.simulate(spectra, repeats=arguments.repeats or 400)))
    else:
        print(table(sizes(spectra, arguments.looks, arguments.repeats or 4000)))


def sizes(spectra: Spectra, number: int | None, repeats: int) -> list[Row]:
    """Rates of every case, at a sweep's end or under that many looks."""
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
    return rows


main()
