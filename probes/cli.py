"""The command ``probes``. Heavy imports wait until a command runs, so that --help answers at once."""

from pathlib import Path
from typing import Annotated

import typer

from analysis.entry import png_file
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
        list[str],
        typer.Option(help="How gradients are compared: raw, weight, adam; repeatable, at no further cost."),
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
    until_resolved: Annotated[
        bool,
        typer.Option("--until-resolved", help="A sigma takes no more images once its verdicts are settled."),
    ] = False,
    looks: Annotated[
        int | None, typer.Option(help="--until-resolved: how often to look, 2 or more.", show_default="4")
    ] = None,
    rule: Annotated[
        str | None, typer.Option(help="--until-resolved: relative, angle or budget.", show_default="relative")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="--until-resolved: as of analysis safety.", show_default=False)
    ] = None,
    settle: Annotated[
        list[str] | None,
        typer.Option(help="--until-resolved: arms to wait for, repeatable; default: all.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="The store; an unfinished one is resumed.")] = Path("probe.zarr"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, from one timed group.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Compare single-step gradients of treated and native steps at matched sigma and noise."""
    from probes.grad import Settings, probe
    from probes.settings import until

    settings = Settings(
        until_resolved=until(until_resolved, looks=looks, rule=rule, margin=margin, settle=tuple(settle or ()) or None),
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


@app.command()
def horizon(
    arm: Annotated[
        str | None,
        typer.Option(help="The treatment, as of train. [default: repromote:56@0.5]", show_default=False),
    ] = None,
    doses: Annotated[
        str, typer.Option(help="Shares of the treated gradient, each twice the one before, up to 1.")
    ] = "1/8,1/4,1/2,1",
    steps: Annotated[str, typer.Option(help="Optimiser steps: 64 looks at 1, 2, 4 ... 64; or a list.")] = "64",
    start: Annotated[
        str, typer.Option(help="warm: an adapter with its optimiser's state. cold: a fresh one.")
    ] = "warm",
    learning_rate: Annotated[float | None, typer.Option(help="As of train.", show_default="0.0001")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repeats with other images, noise and sigma.")] = 3,
    seed: Annotated[int | None, typer.Option(help="The first of the seeds.", show_default="0")] = None,
    jitters: Annotated[
        int, typer.Option(min=0, help="Runs from a start moved a little, for the growth rate: 8 or more, or 0.")
    ] = 8,
    jitter_size: Annotated[float, typer.Option(help="Relative size of that move, of each parameter.")] = 1e-5,
    batch_size: Annotated[int | None, typer.Option(min=1, help="As of train.", show_default="1")] = None,
    attention: Annotated[str | None, typer.Option(help="sdpa, flash or math.", show_default="sdpa")] = None,
    model: Annotated[str | None, typer.Option(help="As of probes grad.", show_default="mini")] = None,
    weights: Annotated[str | None, typer.Option(help="fp32 or bf16.", show_default="fp32")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or auto.", show_default="auto")] = None,
    latents: Annotated[
        str | None, typer.Option(help="As of probes grad; default: the model's own.", show_default=False)
    ] = None,
    adapter: Annotated[
        str | None,
        typer.Option(
            help="Adapter of a checkpoint, its optimizer.safetensors beside it; default: the model's warmed one.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=1, help="Of the fresh LoRA of a cold start.", show_default="16")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of further settings of train.", show_default=False)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes, a run each; default: a core and 4 GiB each.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="The store; an unfinished one is resumed.")] = Path("horizon.zarr"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take, from two timed steps.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object; the figure only with --png.")] = False,
    png: Annotated[
        Path | None, typer.Option(callback=png_file, help="The figure; default: beside the store.", show_default=False)
    ] = None,
) -> None:
    """How long does the separation of training runs measure a treatment's dose, and when does it only detect it?"""
    from probes.horizon.command import horizon as run_horizon
    from probes.horizon.settings import resolve

    given = {
        "arm": arm,
        "learning_rate": learning_rate,
        "seed": seed,
        "batch_size": batch_size,
        "attention": attention,
        "model": model,
        "weights": weights,
        "device": device,
        "latents": latents,
        "adapter": adapter,
        "rank": rank,
    }
    settings = resolve(
        given,
        config=config,
        start=start,
        seeds=seeds,
        doses=doses,
        jitters=jitters,
        jitter_size=jitter_size,
        steps=steps,
    )
    run_horizon(settings, out, processes=jobs, png=png, dry_run=dry_run, json=json)


@app.command()
def plan(
    store: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STORE]", help="A pilot that probes grad made; without one it is made.", show_default=False
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="As of analysis safety. [default: 0.2 of relative, 0.02 of angle]", show_default=False),
    ] = None,
    rule: Annotated[str, typer.Option(help="relative, angle, gap or budget.")] = "relative",
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Arms to plan for; default: all of the store, or those of probes grad.", show_default=False),
    ] = None,
    population: Annotated[str, typer.Option(help="images: how many more. corpus: how many more draws.")] = "images",
    baseline: Annotated[str, typer.Option(help="Arm that the others are compared with.")] = "native",
    control: Annotated[
        str | None, typer.Option(help="As of analysis safety; rule gap only.", show_default=False)
    ] = None,
    chance: Annotated[float, typer.Option(help="That the verdict is settled.")] = 0.8,
    metric: Annotated[str | None, typer.Option(help="Default: the store's first.", show_default=False)] = None,
    step: Annotated[int | None, typer.Option(help="Of a store of several checkpoints.", show_default=False)] = None,
    sigma_grid: Annotated[str | None, typer.Option(help="Of the pilot.", show_default="0.3:0.9:5")] = None,
    images: Annotated[int | None, typer.Option(help="Of the pilot.", show_default="8")] = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Of the pilot.", show_default="4")] = None,
    model: Annotated[str | None, typer.Option(help="As of probes grad.", show_default="mini")] = None,
    weights: Annotated[str | None, typer.Option(help="fp32 or bf16.", show_default="fp32")] = None,
    latents: Annotated[Path | None, typer.Option(help="As of probes grad.", show_default=False)] = None,
    adapter: Annotated[str | None, typer.Option(help="As of probes grad.", show_default=False)] = None,
    engine: Annotated[str | None, typer.Option(help="func or loop.", show_default="func")] = None,
    activation_checkpointing: Annotated[
        bool, typer.Option("--activation-checkpointing", help="As of probes grad.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or auto.", show_default="auto")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the pilot is kept, and resumed.", show_default="pilot.zarr")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    png: Annotated[
        Path | None, typer.Option(callback=png_file, help="Also as a picture; default: none.", show_default=False)
    ] = None,
) -> None:
    """How many images and draws settle each verdict, what that costs here, and what the pilot could detect."""
    from analysis.planning import Asked
    from analysis.planning.command import margin_of, print_plan

    asked = Asked(margin_of(rule, margin), rule, baseline, population, control, tuple(arm or ()), chance, metric)
    of_pilot = {
        "sigma_grid": sigma_grid,
        "images": images,
        "draws": draws,
        "model": model,
        "weights": weights,
        "latents": latents,
        "adapter": adapter,
        "engine": engine,
        "activation_checkpointing": activation_checkpointing or None,
        "device": device,
        "out": out,
    }
    given = {name: value for name, value in of_pilot.items() if value is not None}
    if png is not None:
        from analysis.disk import check_folder

        check_folder(png)
    if store is None:
        from probes.pilot import make

        store = make(asked, given, DEFAULT_ARMS)
    elif given:
        from analysis.errors import UsageError

        option = f"--{next(iter(given))}".replace("_", "-")
        raise UsageError(f"{option} is of a pilot that is to be made, and {store} is one: leave one of the two out")
    print_plan(store, asked, step=step, json_object=json, png=png)


def main() -> None:
    """Entry point of the console script."""
    run_app(app)
