"""What the commands of ``analysis`` do once their options are read: open, assess, print, draw."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import xarray as xr

from analysis import cells, marks, picture, report, store
from analysis import gate as gates
from analysis.answer import Answer, as_json, gathered
from analysis.errors import UsageError
from analysis.over_training.answers import answers, with_step
from analysis.over_training.answers import as_json as answers_as_json
from analysis.safety import assess
from analysis.steps import at_step, steps_of
from analysis.verdict import RULES

CELLS = f"{'sigma':<7} {'cell':<9} {'images':>6}  {'mean loss':>9}  {'seconds':>8}"
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
    step: int | None = None


def print_safety(asked: Asked, *, json_object: bool, png: Path | None) -> int:
    """Print the answer, as text or one JSON object, and draw it; the exit code is the gate's, or 0.

    Of a store of several checkpoints it is that of every step, unless one is asked for.
    """
    dataset = store.open_store(asked.store)
    if asked.step is None and len(steps_of(dataset)) > 1:
        return print_over_training(dataset, asked, json_object=json_object, png=png)
    answer = answer_of(at_step(dataset, asked.step), asked)
    equivalents = _equivalents(asked) if asked.marks else None
    files: dict[str, str] = {}
    if not json_object:
        print(report.as_text(answer, colour=_coloured()), flush=True)
        if equivalents is not None:
            print(f"\n{marks.as_text(equivalents, metric=answer.metric)}", flush=True)
    if png is not None or not (json_object or asked.gate):
        files = _draw(answer, asked.store, png)
    if json_object:
        told = as_json(answer, files) | ({} if equivalents is None else {"marks": marks.as_json(equivalents)})
        told = told if asked.step is None else with_step(told, asked.step)
        print(json.dumps(told, indent=1, allow_nan=False))
    _tell_files(asked.store, {} if json_object else files)
    return 0 if answer.decision is None else answer.decision.exit_code


def print_over_training(dataset: xr.Dataset, asked: Asked, *, json_object: bool, png: Path | None) -> int:
    """The same of a store of several checkpoints: every step's answer, and one picture of all."""
    from analysis.over_training.report import as_text

    steps = steps_of(dataset)
    if asked.marks:
        raise UsageError(f"--marks are of one checkpoint; choose one of {', '.join(map(str, steps))} with --step")
    found = answers(dataset, lambda part: answer_of(part, asked, steps=len(steps)))
    files: dict[str, str] = {}
    if not json_object:
        print(as_text(found, colour=_coloured()), flush=True)
    if png is not None or not (json_object or asked.gate):
        from analysis.over_training.plots import curve_figure

        curve = png or _beside(asked.store)
        picture.write(curve_figure(found), curve)
        files = {"Curve": str(curve)}
    if json_object:
        print(json.dumps(answers_as_json(found, files), indent=1, allow_nan=False))
    _tell_files(asked.store, {} if json_object else files)
    return 0 if found.decision is None else found.decision.exit_code


def answer_of(dataset: xr.Dataset, asked: Asked, *, steps: int = 1) -> Answer:
    """The answer of a dataset without steps; ``steps``: at how many the same is asked. UsageError for what it lacks."""
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
    return gathered(dataset, assessed, metric=asked.metric, gate=gate, every_block=asked.every_block, steps=steps)


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
        *([_entry("steps", ", ".join(map(str, steps)))] if (steps := steps_of(dataset)) else []),
        _entry("arrays", ", ".join(map(str, dataset.data_vars))),
        "",
        f"  {'step':<9}{CELLS}" if steps else f"  {CELLS}",
        *(_cell(dataset.isel(cells.place(sizes, index))) for index in range(done.size)),
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

    curve = png or _beside(path)
    blocks = curve.with_name(f"{curve.stem.removesuffix('-safety')}-blocks.png")
    figures = {
        curve: lambda: plots.safety_figure(answer.assessed, answer.safe),
        blocks: lambda: plots.block_figure(answer.assessed),
    }
    for file, draw in figures.items():
        picture.write(draw(), file)
    return {"Curve": str(curve), "Blocks": str(blocks)}


def _beside(path: Path) -> Path:
    """Where the curve of a store goes that is not told where to."""
    return path.absolute().with_name(f"{path.absolute().stem}-safety.png")


def _coloured() -> bool:
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _tell_files(path: Path, files: Mapping[str, str]) -> None:
    if files:
        print(f"\nStore:     {path}")
        print("\n".join(f"{name + ':':<10} {file}" for name, file in files.items()))


def _equivalents(asked: Asked) -> marks.Measured:
    """Every arm in doses of the store's marks, for a request that was answered."""
    dataset = at_step(store.open_store(asked.store, contents=False), asked.step)
    if asked.metric is not None:
        dataset = dataset.sel(metric=[asked.metric])
    return marks.equivalents(dataset, baseline=asked.baseline, population=asked.population)


def _treated(dataset: xr.Dataset, baseline: str) -> list[str]:
    return [arm for arm in dataset["arm"].values.tolist() if arm != baseline]


def _cell(cell: xr.Dataset) -> str:
    step = f"{int(cell['step']):<9}" if "step" in cell.coords else ""
    sigma = f"  {step}{float(cell['sigma']):<7g}"
    if not bool(cell["done"]):
        return f"{sigma} not done"
    used = int(cell["images_used"])
    loss = float(cell["loss"].isel(image=slice(used)).mean())
    return f"{sigma} {'done':<9} {used:>6}  {loss:>9.4f}  {float(cell['seconds'].sum()):>8.1f}"


def _entry(name: str, text: str) -> str:
    return f"  {name:<12} {text}"


def _ends(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:4])} ... {names[-1]}"
