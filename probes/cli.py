"""The command ``probes``. Heavy imports wait until a command runs, so that --help answers at once."""

from pathlib import Path
from typing import Annotated

import typer

from analysis.entry import run as run_app

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
DEFAULT_ARMS = ["redraw", "repromote:56", "demote:56", "demote:48"]


@app.callback()
def probes() -> None:
    """Measure how large the effect of a change to a training step is, before chaos has had time to act."""


@app.command()
def grad(
    sigma_grid: Annotated[
        str, typer.Option(help="Noise levels: lo:hi (13 points), lo:hi:points, a list, or segments.")
    ] = "0.3:0.9",
    arm: Annotated[
        list[str], typer.Option(help="A way to make a training step, such as demote:56@0.5; repeatable.")
    ] = DEFAULT_ARMS,
    images: Annotated[int, typer.Option(min=1, help="How many images, from the first.")] = 24,
    draws: Annotated[int, typer.Option(min=1, help="Noise draws for each image.")] = 4,
    metric: Annotated[
        list[str], typer.Option(help="How gradients are compared: raw, weight, adam; repeatable, at no further cost.")
    ] = ["raw"],  # noqa: B006 - typer copies it
    engine: Annotated[str, typer.Option(help="func (vectorised) or loop (a backward pass a sample).")] = "func",
    chunk: Annotated[int, typer.Option(min=1, help="Samples that func takes at once.")] = 24,
    attention: Annotated[str, typer.Option(help="sdpa, flash, math or racing.")] = "sdpa",
    model: Annotated[str, typer.Option(help="mini, a folder in diffusers' layout, or a name on the hub.")] = "mini",
    weights: Annotated[
        str, typer.Option(help="fp32 or bf16: of the base model, in memory and computed with.")
    ] = "fp32",
    activation_checkpointing: Annotated[
        bool,
        typer.Option(
            "--activation-checkpointing", help="Compute activations again in the backward pass: engine loop only."
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda; auto: cuda where there is one.")] = "auto",
    latents: Annotated[
        Path | None,
        typer.Option(help="Folder of a cache or, for a model of pixels, of pictures; default: its own corpus."),
    ] = None,
    adapter: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|RUN[@STEP]",
            help="LoRA to probe at: a file, or a run of train (its last checkpoint, or a named one; several are "
            "repeated); default: the model's warmed one.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[int, typer.Option(min=1, help="Rank of a fresh LoRA, where there is none to read.")] = 16,
    seed: Annotated[int, typer.Option(help="Of every draw.")] = 0,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, a sigma each; default: a core and 4 GiB each, or 1 with --threads."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU, in one process; default: 1.")] = None,
    memory: Annotated[float, typer.Option(min=0, help="GiB for a cell's gradients; scratch files beyond.")] = 4.0,
    policy: Annotated[
        bool,
        typer.Option("--policy", help="Also inner products across sigma, for analysis policy: takes disk, 8 images."),
    ] = False,
    out: Annotated[Path, typer.Option(help="The store; an unfinished one is resumed.")] = Path("probe.zarr"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, from one timed group.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare single-step gradients of treated and native steps at matched sigma and noise."""
    from probes.grad import Settings, probe

    settings = Settings(
        sigma_grid=sigma_grid,
        arms=tuple(arm),
        images=images,
        draws=draws,
        metrics=tuple(metric),
        engine=engine,
        chunk=chunk,
        attention=attention,
        model=model,
        latents=latents,
        adapter=tuple(adapter) if adapter else None,
        rank=rank,
        seed=seed,
        jobs=jobs,
        threads=threads,
        memory=memory,
        weights=weights,
        policy=policy,
        activation_checkpointing=activation_checkpointing,
        device=device,
    )
    probe(settings, out, dry_run=dry_run, json=json)


def main() -> None:
    """Entry point of the console script."""
    run_app(app)
