"""The command ``analysis``. Heavy imports wait until a command runs, so that --help answers at once."""

from pathlib import Path
from typing import Annotated

import typer

from analysis.entry import png_file, run

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Store = Annotated[Path, typer.Argument(metavar="STORE", help="Folder that probes grad made.", show_default=False)]
Step = Annotated[
    int | None,
    typer.Option(help="One checkpoint, by its step, of a store of several.", show_default=False),
]


@app.callback()
def analysis() -> None:
    """Derive figures, verdicts and pictures from what was measured. No model is needed."""


@app.command()
def safety(
    store: Store,
    baseline: Annotated[str, typer.Option(help="Arm that the others are compared with.")] = "native",
    population: Annotated[
        str, typer.Option(help="images: images like these. corpus: exactly these images (needs 4 draws or more).")
    ] = "images",
    rule: Annotated[str, typer.Option(help="relative, angle, gap or budget.")] = "relative",
    margin: Annotated[
        float | None,
        typer.Option(
            help="In the rule's unit. relative: bias over the native mean gradient (default 0.2). angle: 1 - cosine "
            "(default 0.02). gap: mean excess squared bias over the squared native mean. budget: samples.",
            show_default=False,
        ),
    ] = None,
    control: Annotated[
        str | None, typer.Option(help="Arm whose own bias is taken off; rule gap only.", show_default=False)
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="One metric of the store; default: its first.", show_default=False)
    ] = None,
    gate: Annotated[
        str | None,
        typer.Option(
            metavar="ARM@LO:HI",
            help="Answer by exit code, both ends included: 0 safe there, 1 harmful somewhere, 3 unresolved.",
            show_default=False,
        ),
    ] = None,
    every_block: Annotated[bool, typer.Option("--every-block", help="Gate on each block, not on their sum.")] = False,
    step: Step = None,
    marks: Annotated[
        bool, typer.Option("--marks", help="Each arm as an equivalent gain, jitter, sigma shift and dtype, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object; pictures only with --png.")] = False,
    png: Annotated[
        Path | None,
        typer.Option(
            callback=png_file,
            help="The curve; its heat map goes beside it. Default: STORE-safety.png and STORE-blocks.png, which --json "
            "and --gate leave out.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Where is each arm safe? A table of sigma x arm, safe windows, and two pictures.

    Of a store of several checkpoints: at each of them, and one picture; a gate asks for all of them.
    """
    from analysis.commands import Asked, print_safety

    asked = Asked(store, baseline, population, rule, margin, control, metric, gate, every_block, marks, step)
    raise typer.Exit(print_safety(asked, json_object=json, png=png))


@app.command()
def policy(
    store: Store,
    policy: Annotated[
        list[str],
        typer.Option(
            help="Arms of the store by windows of sigma, such as demote:48@0.8,demote:56@0.5:0.8; repeatable.",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer copies it
    sigma_sampler: Annotated[str, typer.Option(help="How training draws sigma, as of train.")] = "uniform",
    cost: Annotated[str, typer.Option(help="seconds (as measured) or tokens.")] = "seconds",
    population: Annotated[
        str, typer.Option(help="images: images like these. corpus: exactly these images (needs 8 draws or more).")
    ] = "images",
    rule: Annotated[str | None, typer.Option(help="relative or angle; asks for verdicts.", show_default=False)] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="In the rule's unit, as of safety (0.2 and 0.02); asks for verdicts, and for the fastest safe policy.",
            show_default=False,
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Of one optimiser step: batch size x accumulation.")] = 1,
    baseline: Annotated[str, typer.Option(help="Arm that policies are compared with, and have outside.")] = "native",
    metric: Annotated[
        str | None, typer.Option(help="One metric of the store; default: its first.", show_default=False)
    ] = None,
    step: Step = None,
    write: Annotated[
        Path | None,
        typer.Option(help="File for train --policy: of the policy that was picked, or named.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    png: Annotated[
        Path | None,
        typer.Option(callback=png_file, help="Picture of the front, bias against speed-up.", show_default=False),
    ] = None,
) -> None:
    """What do mixtures of arms over sigma do to the expected training gradient, and which is the fastest safe one?"""
    from analysis.policy.command import Asked, print_policy

    asked = Asked(tuple(policy), sigma_sampler, cost, population, rule, margin, samples, baseline, metric, step)
    raise typer.Exit(print_policy(store, asked, json_object=json, png=png, toml=write))


@app.command()
def show(store: Store) -> None:
    """What a store holds, which cells are done, and where it comes from."""
    from analysis.commands import print_contents

    print_contents(store)


@app.command()
def export(
    store: Store,
    out: Annotated[Path, typer.Argument(metavar="OUT.nc", help="The file to write.", show_default=False)],
    step: Step = None,
) -> None:
    """Write a store to one netCDF file."""
    from analysis.store import export

    export(store, out, step=step)
    typer.echo(out)


@app.command()
def horizon(
    store: Annotated[
        Path, typer.Argument(metavar="STORE", help="Folder that probes horizon made.", show_default=False)
    ],
    json: Annotated[bool, typer.Option("--json", help="One JSON object; the figure only with --png.")] = False,
    png: Annotated[
        Path | None, typer.Option(callback=png_file, help="The figure; default: beside the store.", show_default=False)
    ] = None,
) -> None:
    """How far the ruler reaches, from a store of seeds that are done."""
    from analysis.horizon.command import print_horizon
    from analysis.horizon.store import read

    print_horizon(store, read(store), json_object=json, png=png)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="Safetensors file, or folder of them.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same.", show_default=False)],
    metadata: Annotated[bool, typer.Option("--metadata", help="Header metadata count for the exit code.")] = False,
    first: Annotated[int, typer.Option(help="Names to list of each kind and file; 0 lists all.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, with every name.")] = False,
) -> None:
    """Compare tensors byte by byte. Exit code as cmp's: 0 equal, 1 differs, 2 trouble."""
    from analysis.diff import print_difference

    raise typer.Exit(print_difference(a, b, metadata=metadata, first=first, json_object=json))


@app.command()
def endpoints(
    given: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, LoRA files, or one end-point store.", show_default=False
        ),
    ],
    out: Annotated[Path | None, typer.Option(help="Zarr store to keep the inner products in.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Run to compare with; default: the first native one of the same settings.")
    ] = None,
    every_pair: Annotated[bool, typer.Option("--every-pair", help="All pairs, not each with its baseline.")] = False,
    blocks: Annotated[bool, typer.Option("--blocks", help="List every block.")] = False,
    across_environments: Annotated[
        bool, typer.Option("--across-environments", help="Compare runs made elsewhere too, without verdicts.")
    ] = False,
    png: Annotated[
        Path | None,
        typer.Option(callback=png_file, help="Picture by depth, and beside it growth; default: beside --out."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Compare what whole runs did to their adapters: a detector, never a ruler.

    Exit code 3: runs were given, and no pair of them got a verdict.
    """
    from analysis.endpoints.command import Asked, print_endpoints

    asked = Asked(given, out, baseline, every_pair, blocks, across_environments)
    raise typer.Exit(print_endpoints(asked, json_object=json, png=png))


@app.command()
def calibrate(
    store: Store,
    repeats: Annotated[int, typer.Option(min=100, help="Of every planted world; a quarter of them for power.")] = 1000,
    margin: Annotated[float, typer.Option(help="Relative bias at which verdicts are tried.")] = 0.2,
    sigma: Annotated[
        float | None,
        typer.Option(help="Cell whose spectrum and noise are planted; default: the middle one.", show_default=False),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="One metric of the store; default: its first.", show_default=False)
    ] = None,
    baseline: Annotated[str, typer.Option(help="Arm that the others are compared with.")] = "native",
    step: Step = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Simulate this store's design: are verdicts and intervals right, and how often is one reached?"""
    from analysis.calibration.command import Asked, print_calibration

    print_calibration(Asked(store, repeats, margin, sigma, metric, baseline, step), json_object=json)


@app.command("import-lowres")
def import_lowres(
    file: Annotated[Path, typer.Argument(metavar="FILE.jsonl", help="One JSON object per image.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Zarr store to keep the records in.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Read published per-image records and recompute their two tables."""
    from analysis.lowres.command import print_lowres

    print_lowres(file, out, json_object=json)


def main() -> None:
    """Entry point of the console script."""
    run(app)
