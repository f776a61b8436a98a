"""Policies: what the command costs, and whether its ranking is that of training.

    python benchmarks/policy.py                      # both; the second trains (8 policies + native) x --seeds runs
    python benchmarks/policy.py --only speed

- speed: `analysis policy --margin 0.2` as a process, on a planted store of 13 sigma x 5 arms x 30 blocks (goal: 5
  seconds of an idle machine; processor seconds are told too, which others on the machine disturb less);
- ranking: policies on the mini model, ranked by the relative bias of their expected gradient, from a store that
  `probes grad --policy` makes at the warmed adapter (of the corpus, since the runs train on it), against their
  displacement from native after 30 deterministic steps from there at learning rate 1e-3: Spearman's correlation (goal
  0.8). A step has one image, since a window treats a batch only whole. Displacements of single runs hold noise
  that averages out of a gradient's mean, so the length of their mean over seeds (from pairs of different seeds) is told
  beside.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

os.environ["OMP_NUM_THREADS"] = "1"  # read when numpy starts

import numpy as np
from scipy.stats import spearmanr

from analysis import store, synthetic
from analysis.endpoints.displacement import displacement
from analysis.lora.file import read
from analysis.lora.pairing import paired
from analysis.policy.answer import Question
from analysis.policy.answering import answered
from analysis.provenance import Code, Provenance

POLICIES = (
    "demote:48", "demote:56", "repromote:48", "demote:48@0.75", "demote:48@0.5", "demote:56@0.5", "demote:56@0.25",
    "demote:48@0.75,demote:56@0.25:0.75",
)  # fmt: skip
METRICS = ("raw", "weight", "adam")
GRID = "0.0625:0.9375:8"  # cells of an eighth, which cover (0, 1]


def speed(folder: Path, repeats: int) -> None:
    """Wall-clock and processor seconds of the whole command."""
    sigmas = [(k + 0.5) / 13 for k in range(13)]
    arms = {"demote:56": 0.05, "demote:48": 0.15, "repromote:56": 0.1, "redraw": 0.0}
    data = synthetic.policy_store(
        signed_bias=arms, sigmas=sigmas, blocks=[f"block_{i}" for i in range(30)], images=16,
        seconds={"demote:56": 0.75, "demote:48": 0.5},
    )  # fmt: skip
    store.write(folder / "planted.zarr", data, Provenance("", {}, Code("")))
    command = [sys.executable, "-c", "from analysis.cli import main; main()", "policy", str(folder / "planted.zarr")]
    walls, processors = [], []
    for _ in range(repeats):
        before, started = os.times(), perf_counter()
        subprocess.run([*command, "--margin", "0.2"], check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        walls.append(perf_counter() - started)
        processors.append(after.children_user + after.children_system - before.children_user - before.children_system)
    print(
        f"13 sigma x 5 arms x 30 blocks, 16 folds: {min(walls):.2f} s wall-clock, {min(processors):.2f} s of "
        f"processor, least of {repeats}; load {os.getloadavg()[0]:.1f} (goal 5 s)"
    )


def ranking(folder: Path, seeds: int, steps: int, made: Path | None) -> None:
    """Bias of the expected gradient beside displacement from native."""
    path = made or folder / "probe.zarr"
    if made is None:
        words = ["--arm", "demote:56", "--arm", "demote:48", "--arm", "repromote:48", "--images", "24", "--draws", "8"]
        words += [word for metric in METRICS for word in ("--metric", metric)]
        words += ["--policy", "--sigma-grid", GRID, "--out", str(path)]
        call = "from probes.cli import main; main()"
        subprocess.run([sys.executable, "-c", call, "grad", *words, "--threads", "1"], check=True)
    dataset = store.open_store(path)
    asked = Question("uniform", "tokens", "corpus", "relative", None, "native", 1)
    bias = {}
    for metric in dataset["metric"].values.tolist():
        total = answered(dataset, asked, POLICIES, metric).total.sel(policy=list(POLICIES))
        bias[metric] = total["relative_bias_squared"].values
    single, mean = displacements(trained(folder, seeds, steps), seeds)
    names = " ".join(f"{metric:>8}" for metric in bias)
    print(f"{'relative bias of policy, by metric':<38} {names} {'displacement':>13} {'of the mean':>12}")
    for at, name in enumerate(POLICIES):
        shown = [np.copysign(abs(values[at]) ** 0.5, values[at]) for values in bias.values()]
        told = " ".join(f"{value:>8.3f}" for value in shown)
        print(f"{name:<38} {told} {single[at]:>13.4f} {mean[at]:>12.4f}")
    for metric, values in bias.items():
        one, other = (float(spearmanr(values, lengths).statistic) for lengths in (single, mean))
        print(
            f"Spearman of bias ({metric}), {len(POLICIES)} policies x {seeds} seeds x {steps} steps: {one:.2f} with "
            f"displacement (goal 0.8), {other:.2f} with that of the mean over seeds"
        )


def trained(folder: Path, seeds: int, steps: int) -> list[Path]:
    """Adapters of native and of every policy, seed after seed."""
    from train.model import MINI
    from train.run import run
    from train.settings import Settings

    adapter = MINI / "adapter" / "adapter.safetensors"
    found = []
    for seed in range(seeds):
        for place, arm in enumerate(("native", *POLICIES)):
            settings = Settings(
                arm=arm, steps=steps, deterministic=True, adapter=str(adapter), rank=4, alpha=4.0, learning_rate=1e-3,
                images=24, seed=seed, threads=1, checkpoint_every=0,
            )  # fmt: skip
            out = folder / f"{seed}-{place}"
            run(settings, out, resuming=True)
            found.append(out / "adapter.safetensors")
    return found


def displacements(files: list[Path], seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each policy: |dW - dW native| as a mean over seeds, and the length of its mean, from different seeds' pairs.

    All runs begin at one adapter, which falls out of the difference.
    """
    gram = sum(displacement(paired([read(file) for file in files]), [False] * len(files)).values())
    each = np.asarray(gram).reshape(seeds, 1 + len(POLICIES), seeds, 1 + len(POLICIES))
    delta = each[:, 1:, :, 1:] - each[:, :1, :, 1:] - each[:, 1:, :, :1] + each[:, :1, :, :1]
    pairs = np.einsum("spup->psu", delta)  # [policy, seed, seed]
    own = np.einsum("pss->ps", pairs)
    other = (pairs.sum((1, 2)) - own.sum(1)) / max(1, seeds * (seeds - 1))
    return np.sqrt(own).mean(1), np.copysign(np.sqrt(np.abs(other)), other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("speed", "ranking"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--store", type=Path, help="A store of the ranking's probe that is there already.")
    parser.add_argument("--runs", type=Path, help="Folder to keep runs in, and to go on with them from.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        if given.only != "ranking":
            speed(Path(temporary), given.repeats)
        if given.only != "speed":
            folder = given.runs or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            ranking(folder, given.seeds, given.steps, given.store)


if __name__ == "__main__":
    main()
