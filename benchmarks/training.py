"""What a training step costs, in one run on the mini model: `python benchmarks/training.py [--rounds 5]`.

- steps a second of the trainer, with everything a run does at each step, against a bare loop of diffusers and peft
  that does the same work: same model, LoRA, batch, sigma, noise, loss, clipping and AdamW (goal 0.95);
- what strict determinism costs here;
- how long the certificate takes, in steps.

Rounds alternate, so that what else the machine does falls on all alike. (A train.py here would hide the package from
every script beside it.)
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch
from diffusers import FluxTransformer2DModel
from peft import LoraConfig

from train.certify import certify
from train.determinism import strict_within
from train.job import Job, prepare
from train.model import MINI
from train.record import StepLog, line_of
from train.settings import Settings
from train.training_step import advance


def bare_loop(settings: Settings, pictures: torch.Tensor, targets: str) -> Callable[[int], None]:
    """A plain training step as a script would have it. pictures: clean latents [N, C, H, W]."""
    transformer = FluxTransformer2DModel.from_pretrained(MINI / "transformer").float().eval().requires_grad_(False)
    transformer.add_adapter(LoraConfig(r=settings.rank, lora_alpha=settings.rank, target_modules=targets))
    trainable = [p for p in transformer.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trainable, lr=settings.learning_rate, weight_decay=settings.weight_decay, foreach=True
    )
    batch, side = settings.batch_size, pictures.shape[-1] // 4
    axis = torch.arange(side, dtype=torch.float32)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    img_ids = torch.stack([torch.zeros(side * side), rows.flatten(), columns.flatten()], 1)
    text, pooled, txt_ids = torch.zeros(batch, 1, 16), torch.zeros(batch, 16), torch.zeros(1, 3)

    def packed(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(batch, 3, side, 4, side, 4).permute(0, 2, 4, 1, 3, 5).reshape(batch, side * side, 48)

    def step(number: int) -> None:
        x0 = packed(pictures[torch.randint(len(pictures), (batch,))])
        noise, sigma = torch.randn_like(x0), torch.rand(batch)
        level = sigma[:, None, None]
        answer = transformer(
            hidden_states=(1 - level) * x0 + level * noise, timestep=sigma, encoder_hidden_states=text,
            pooled_projections=pooled, img_ids=img_ids, txt_ids=txt_ids, return_dict=False,
        )[0]  # fmt: skip
        loss = (answer - (noise - x0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trainable, settings.clip)
        optimizer.step()
        loss.item()

    return step


def seconds(step: Callable[[int], object], numbers: range) -> float:
    """Wall-clock time of steps."""
    started = perf_counter()
    for number in numbers:
        step(number)
    return perf_counter() - started


def logged(job: Job, log: StepLog) -> Callable[[int], None]:
    """A step of the trainer with its line."""

    def step(number: int) -> None:
        before = perf_counter()
        outcome = advance(job, number)
        log.add(line_of(job, number, outcome, perf_counter() - before))

    return step


def strictly(step: Callable[[int], None]) -> Callable[[int], None]:
    """The same step under strict determinism."""

    def strict_step(number: int) -> None:
        with strict_within():
            step(number)

    return strict_step


def measured(kinds: Mapping[str, Callable[[int], None]], rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of every round of ``steps`` steps by kind, after one round that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for i in range(rounds + 1):
        for name, step in kinds.items():
            times[name].append(seconds(step, range(i * steps, (i + 1) * steps)))
    return {name: found[1:] for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="of each kind in a round")
    parser.add_argument("--batch-size", type=int, default=2)
    asked = parser.parse_args()
    settings = Settings(steps=(asked.rounds + 1) * asked.steps, batch_size=asked.batch_size)
    job, strict_job = prepare(settings), prepare(replace(settings, deterministic=True))
    latents = job.source.latents
    pictures = torch.stack([latents.latent(name, latents.tier) for name in latents.names])
    with ExitStack() as stack:
        logs = [
            stack.enter_context(closing(StepLog(Path(stack.enter_context(tempfile.TemporaryDirectory())), 0)))
            for _ in range(2)
        ]
        kinds = {
            "bare loop": bare_loop(settings, pictures, job.lora.targets),
            "trainer": logged(job, logs[0]),
            "deterministic": strictly(logged(strict_job, logs[1])),
        }
        times = measured(kinds, asked.rounds, asked.steps)
    with strict_within():
        certifying = seconds(lambda _: certify(strict_job), range(1))
    print(f"batch {asked.batch_size}, {asked.rounds} rounds of {asked.steps} steps, {torch.get_num_threads()} threads")
    speeds = {name: asked.steps / statistics.median(found) for name, found in times.items()}
    print("steps a second: " + ", ".join(f"{name} {speed:.2f}" for name, speed in speeds.items()))
    shown("trainer against the bare loop (goal 0.95)", times["bare loop"], times["trainer"])
    shown("with strict determinism against without", times["trainer"], times["deterministic"])
    print(f"the certificate takes as long as {certifying * speeds['deterministic']:.0f} steps")


def shown(what: str, base: list[float], other: list[float]) -> None:
    """Ratio of speeds: its median and range over rounds."""
    ratios = [a / b for a, b in zip(base, other, strict=True)]
    print(f"{what}: {statistics.median(ratios):.3f} times as fast ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
