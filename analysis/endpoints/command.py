"""What ``analysis endpoints`` does once its options are read: read, compare, keep, print, draw."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

from analysis.endpoints import report, sources, store
from analysis.endpoints.pairs import NO_FLOOR, REFUTED, Pair, pairs
from analysis.endpoints.published import published_pairs
from analysis.errors import Refused, UsageError


@dataclass(frozen=True)
class Asked:
    """The options of ``analysis endpoints``."""

    given: Sequence[Path]
    out: Path | None
    baseline: str | None
    every_pair: bool
    blocks: bool
    across_environments: bool


def print_endpoints(asked: Asked, *, json_object: bool, png: Path | None) -> int:
    """Print pairs as text or one JSON object. Exit code 3 where runs were compared and no pair got a verdict."""
    dataset = None if is_published(asked.given) else found(asked)
    if dataset is None:
        if asked.baseline is not None or asked.every_pair or asked.out is not None:
            raise UsageError("published files hold pairs as they are: leave out --baseline, --every-pair and --out")
        compared = [pair for path in asked.given for pair in published_pairs(path)]
        treatments, doses, of_runs = {}, {}, False
    else:
        compared = pairs(dataset, baseline=chosen(dataset, asked.baseline), every=asked.every_pair)
        names = dataset["arm"].values.tolist()
        treatments = dict(zip(names, dataset["treatment"].values.tolist(), strict=True))
        known = dataset["dose"].notnull().values.tolist()
        doses = {n: d for n, d, k in zip(names, dataset["dose"].values.tolist(), known, strict=True) if k}
        of_runs = any(dataset["environment"].values.tolist())
    if asked.out is not None:
        assert dataset is not None
        store.write(asked.out, dataset)
    pictures = draw(compared, png or picture_beside(asked.out)) if png or (asked.out and not json_object) else {}
    if json_object:
        content = report.as_json(compared, treatments, doses) | read_as(dataset) | {"files": pictures}
        print(json.dumps(content, indent=1, allow_nan=False))
    else:
        print(report.as_text(compared, treatments, doses, blocks=asked.blocks))
        if asked.out is not None:
            print(f"\nStore:    {asked.out}")
        print("".join(f"\n{name + ':':<9} {file}" for name, file in pictures.items()), end="\n" if pictures else "")
    refused = of_runs and all(pair.total.verdict in (NO_FLOOR, REFUTED) for pair in compared)
    return Refused.exit_code if refused else 0


def is_published(given: Sequence[Path]) -> bool:
    """Whether published JSON files were given; UsageError where anything else is among them."""
    ours = [path.suffix == ".json" for path in given]
    if any(ours) and not all(ours):
        raise UsageError(f"{given[ours.index(False)]}: published files are shown by themselves; give those alone")
    return any(ours)


def found(asked: Asked) -> xr.Dataset:
    """The dataset of a store, or made of runs and files."""
    from analysis.endpoints.displacement import measured

    missing = next((path for path in asked.given if not path.exists()), None)
    if missing is not None:
        raise UsageError(f"{missing}: no such file or folder; give folders of runs, or LoRA files")
    if any(map(store.is_store, asked.given)):
        if len(asked.given) > 1:
            raise UsageError("an end-point store is shown by itself: give it alone, or give runs")
        return store.read(asked.given[0])
    runs = sources.sources(asked.given)
    sources.check_models(runs)
    if not asked.across_environments:
        sources.check_environments(runs)
    dataset, reading = measured(runs)
    for warning in report.about_reading(reading.warnings, reading.unpaired):
        print(f"warning: {warning}", file=sys.stderr)
    # Kept with the figures, so that a store still tells how its files were read.
    return dataset.assign_attrs(scale_rules=json.dumps(reading.scale_rules), unpaired=json.dumps(reading.unpaired))


def read_as(dataset: xr.Dataset | None) -> dict[str, Any]:
    """Scale rules by module and modules without a partner, as the store keeps them."""
    if dataset is None:
        return {}
    return {name: json.loads(dataset.attrs[name]) for name in ("scale_rules", "unpaired") if name in dataset.attrs}


def chosen(dataset: xr.Dataset, baseline: str | None) -> str | None:
    """The run that ``--baseline`` names."""
    names = dataset["arm"].values.tolist()
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline}: not among the runs; they are {', '.join(names)}")
    return baseline


def picture_beside(out: Path | None) -> Path:
    """Of the depth profile, beside a store."""
    place = (out or Path("endpoints")).absolute()
    return place.with_name(f"{place.stem}-profile.png")


def draw(compared: Sequence[Pair], profile: Path) -> Mapping[str, str]:
    """Write the depth profile and, of several checkpoints, the growth of separation."""
    from analysis import picture
    from analysis.endpoints import plots

    figures = {"Profile": (profile, plots.profile_figure)}
    if len(compared[0].growth) > 1:
        name = f"{profile.stem.removesuffix('-profile')}-growth.png"
        figures["Growth"] = (profile.with_name(name), plots.growth_figure)
    for file, figure in figures.values():
        picture.write(figure(compared), file)
    return {name: str(file) for name, (file, _) in figures.items()}
