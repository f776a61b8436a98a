"""What the commands of ``analysis`` do once their options are read: open, assess, print, draw."""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from analysis import gate as gates
from analysis import marks, report, store
from analysis.answer import Answer, as_json, gathered
from analysis.errors import UsageError
from analysis.safety import assess
from analysis.verdict import RULES

DEFAULT_MARGINS = {"relative": 0.2, "angle": 0.02}
"""A bias of one fifth of the native gradient's length, and the turn that is as long (11.5 degrees)."""


@dataclass(frozen=True)
class Asked:
    """The options of ``analysis safety``; ``margin`` None is the rule's default."""

    store: Path
    baseline: str
    population: str
    rule: str
    margin: float | None
    control: str | None
    metric: str | None
    gate: str | None
    every_block: bool
    marks: bool = False


def print_safety(asked: Asked, *, json_object: bool, png: Path | None) -> int:
    """Print the answer, as text or one JSON object, and draw it; the exit code is the gate's, or 0."""
    answer = answered(asked)
    equivalents = _equivalents(asked) if asked.marks else None
    files: dict[str, str] = {}
    if not json_object:
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        print(report.as_text(answer, colour=colour), flush=True)
        if equivalents is not None:
            print(f"\n{marks.as_text(equivalents, metric=answer.metric)}", flush=True)
    if png is not None or not (json_object or asked.gate):
        files = _draw(answer, asked.store, png)
    if json_object:
        told = as_json(answer, files) | ({} if equivalents is None else {"marks": marks.as_json(equivalents)})
        print(json.dumps(told, indent=1, allow_nan=False))
    elif files:
        print(f"\nStore:     {asked.store}")
        print("\n".join(f"{name + ':':<10} {file}" for name, file in files.items()))
    return 0 if answer.decision is None else answer.decision.exit_code


def answered(asked: Asked) -> Answer:
    """The answer to ``asked``. Raises UsageError for a bad store, or what this store cannot answer."""
    dataset = store.open_store(asked.store)
    gate = None if asked.gate is None else gates.parse(asked.gate, _treated(dataset, asked.baseline))
    if asked.rule not in RULES:
        raise UsageError(f"rule {asked.rule!r} is not one of {', '.join(RULES)}")
    margin = DEFAULT_MARGINS.get(asked.rule) if asked.margin is None else asked.margin
    if margin is None:
        unit = {"budget": "samples (steps x batch)", "gap": "squared bias over the squared native mean"}
        raise UsageError(
            f"rule {asked.rule!r} has no default margin: give --margin in {unit.get(asked.rule, 'its unit')}"
        )
    assessed = assess(
        dataset,
        baseline=asked.baseline,
        population=asked.population,
        rule=asked.rule,
        margin=margin,
        control=asked.control,
    )
    return gathered(dataset, assessed, metric=asked.metric, gate=gate, every_block=asked.every_block)


def print_contents(path: Path) -> None:
    """Print a store's labels, cells and provenance."""
    dataset = store.open_store(path)
    origin = store.provenance(path)
    sizes = dataset.sizes
    done = dataset["done"].values
    lines = [
        f"{path}: probe store, schema version {dataset.attrs['schema_version']}, "
        f"{int(done.sum())} of {done.size} cells done",
        _entry("arms", ", ".join(dataset["arm"].values.tolist())),
        _entry("metrics", ", ".join(dataset["metric"].values.tolist())),
        _entry("blocks", f"{sizes['block']}: {_ends(dataset['block'].values.tolist())}"),
        _entry("images", f"{sizes['image']}: {_ends(dataset['image'].values.tolist())}"),
        _entry("draws", f"{sizes['draw']} per image"),
        _entry("arrays", ", ".join(map(str, dataset.data_vars))),
        "",
        f"  {'sigma':<7} {'cell':<9} {'images':>6}  {'mean loss':>9}  {'seconds':>8}",
        *(_cell(dataset.isel(sigma=index)) for index in range(done.size)),
        "",
        _entry("command", origin.command),
        _entry("code", " ".join(filter(None, ("version", origin.code.version, origin.code.commit)))),
    ]
    for name, entries in (
        ("settings", origin.settings),
        ("hashes", origin.hashes),
        ("environment", origin.environment),
        ("certificate", origin.certificate or {"": "none taken"}),
    ):
        told = [
            f"{key} {value if isinstance(value, str) else json.dumps(value)}".strip() for key, value in entries.items()
        ]
        lines += [_entry(name if place == 0 else "", line) for place, line in enumerate(told or ["none"])]
    print("\n".join(lines))


def _draw(answer: Answer, path: Path, png: Path | None) -> dict[str, str]:
    """Write both pictures; by default beside the store. What they are, and where."""
    from analysis import plots
    from analysis.atomic import replacing

    curve = png or path.absolute().with_name(f"{path.absolute().stem}-safety.png")
    blocks = curve.with_name(f"{curve.stem.removesuffix('-safety')}-blocks.png")
    figures = {
        curve: lambda: plots.safety_figure(answer.assessed, answer.safe),
        blocks: lambda: plots.block_figure(answer.assessed),
    }
    for file, draw in figures.items():
        with replacing(file) as partial:
            draw().savefig(partial, format="png")
    return {"Curve": str(curve), "Blocks": str(blocks)}


def _equivalents(asked: Asked) -> marks.Measured:
    """Every arm in doses of the store's marks, for a request that was answered."""
    dataset = store.open_store(asked.store, contents=False)
    if asked.metric is not None:
        dataset = dataset.sel(metric=[asked.metric])
    return marks.equivalents(dataset, baseline=asked.baseline, population=asked.population)


def _treated(dataset: xr.Dataset, baseline: str) -> list[str]:
    return [arm for arm in dataset["arm"].values.tolist() if arm != baseline]


def _cell(cell: xr.Dataset) -> str:
    sigma = f"  {float(cell['sigma']):<7g}"
    if not bool(cell["done"]):
        return f"{sigma} not done"
    used = int(cell["images_used"])
    loss = float(cell["loss"].isel(image=slice(used)).mean())
    return f"{sigma} {'done':<9} {used:>6}  {loss:>9.4f}  {float(cell['seconds'].sum()):>8.1f}"


def _entry(name: str, text: str) -> str:
    return f"  {name:<12} {text}"


def _ends(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:4])} ... {names[-1]}"
