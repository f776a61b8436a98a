"""Inner products of what runs did to an adapter: ``displacement[step, block, arm, arm_2]``, Eq. 15 of docs/method.md.

A run's displacement is dW = scale up @ down at a checkpoint, less that of the adapter it began from. All of it is done
in float64 and in rank space: no matrix of a module's full size is formed.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import xarray as xr
from tqdm import tqdm

from analysis.blocks import block_of, depth_order
from analysis.bytewise import digests
from analysis.endpoints import schema
from analysis.endpoints.sources import Source, command_of, common_steps, digest, environment_of
from analysis.lora.file import LoraFile, read
from analysis.lora.pairing import Paired, paired
from analysis.run_folder import RunFolder
from analysis.safetensors_file import opened

Grams = dict[str, np.ndarray]


@dataclass(frozen=True)
class Reading:
    """How adapters were read. scale_rules: by source and module; unpaired: modules that not every source has."""

    scale_rules: Mapping[str, Mapping[str, str]]
    unpaired: Mapping[str, Sequence[str]]
    warnings: Sequence[str]


def measured(sources: Sequence[Source]) -> tuple[xr.Dataset, Reading]:
    """The end-point dataset of runs or files, and how the last checkpoint's files were read."""
    steps = common_steps(sources)
    grams: list[Grams] = []
    differing: list[Grams] = []
    together = Paired((), (), (), ())
    for step in tqdm(steps, desc="checkpoints", delay=2, disable=None, dynamic_ncols=True):
        files = [source.files(step) for source in sources]
        ends = [read(end) for end, _ in files]
        starts = [None if start is None else read(start) for _, start in files]
        together = paired([*ends, *(start for start in starts if start is not None)])
        grams.append(displacement(together, [start is not None for start in starts]))
        differing.append(differing_tensors(ends))
    blocks = depth_order({block for found in (*grams, *differing) for block in found})
    size, names = len(sources), [source.name for source in sources]
    dataset = xr.Dataset(
        {
            "displacement": (("step", "block", "arm", "arm_2"), stacked(grams, blocks, size, float)),
            "differing_tensors": (("step", "block", "arm", "arm_2"), stacked(differing, blocks, size, int)),
            **about_runs(sources, steps),
        },
        {"step": np.array(steps, dtype=np.int64), "block": blocks, "arm": names, "arm_2": names},
        {"runs": json.dumps({s.name: asdict(s.run.provenance) for s in sources if s.run is not None})},
    )
    return schema.described(dataset), reading(names, together)


def displacement(together: Paired, started: Sequence[bool]) -> Grams:
    """[run, run] inner products by block. The files are the runs' ends, then the starts of those that have one."""
    signs = np.eye(len(started), len(together.files))  # [run, file]: dW is the end, less the start
    for file, run in enumerate(np.flatnonzero(started), len(started)):
        signs[run, file] = -1.0
    grams: Grams = {}
    for module in together.modules:
        gram = signs @ module.inner_products() @ signs.T
        grams[module.block] = grams.get(module.block, 0.0) + 0.5 * (gram + gram.T)
    return grams


def reading(names: Sequence[str], together: Paired) -> Reading:
    """How the files of the runs' ends were read, by name."""
    rules = {
        name: {each.name: module.rule for each in together.modules for module in (each.files[i],)}
        for i, name in enumerate(names)
    }
    unpaired = {name: alone for name, alone in zip(names, together.alone, strict=False) if alone}
    return Reading(rules, unpaired, together.warnings)


def differing_tensors(files: Sequence[LoraFile]) -> Grams:
    """[run, run] tensors by block that are not equal to the byte, or are there on one side only.

    A module's scale counts as one: files may keep it beside the tensors.
    """
    held: list[dict[str, bytes]] = []
    for each in files:
        with opened(each.path) as file:
            scales = {f"{name}.scale": str(module.scale).encode() for name, module in each.modules.items()}
            held.append(digests(file.tensors) | scales)
    found: Grams = {}
    for i, mine in enumerate(held):
        for j, other in enumerate(held[:i]):
            names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
            for block, count in Counter(map(block_of, names)).items():
                gram = found.setdefault(block, np.zeros((len(files), len(files)), dtype=np.int64))
                gram[i, j] = gram[j, i] = count
    return found


def stacked(found: Sequence[Grams], blocks: Sequence[str], size: int, kind: type) -> np.ndarray:
    """[step, block, run, run], zero where a step has nothing in a block."""
    none = np.zeros((size, size), dtype=kind)
    return np.array([[grams.get(block, none) for block in blocks] for grams in found])


def about_runs(sources: Sequence[Source], steps: Sequence[int]) -> Mapping[str, tuple[tuple[str, ...], object]]:
    """What is known of each run, on the dimension ``arm``."""
    runs = [source.run for source in sources]
    return {
        "treatment": (("arm",), ["" if run is None else run.treatment for run in runs]),
        "window_lo": (("arm",), [np.nan if run is None else run.window[0] for run in runs]),
        "window_hi": (("arm",), [np.nan if run is None else run.window[1] for run in runs]),
        "dose": (("arm",), [np.nan if run is None else dose(run, steps[-1]) for run in runs]),
        "treated_steps": (("step", "arm"), [[treated(run, step) for run in runs] for step in steps]),
        "certified": (("arm",), [run is not None and run.certified for run in runs]),
        "deterministic": (("arm",), [run is not None and run.deterministic for run in runs]),
        "command": (("arm",), ["" if run is None else command_of(run) for run in runs]),
        "environment": (("arm",), ["" if run is None else digest(environment_of(run)) for run in runs]),
    }


def treated(run: RunFolder | None, step: int) -> int:
    """Steps treated so far; -1 where that is not known."""
    return -1 if run is None else sum(run.treated[: step or None])


def dose(run: RunFolder, step: int) -> float:
    """Share of the steps so far that were treated."""
    return treated(run, step) / (step or len(run.treated))
