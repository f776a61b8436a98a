"""The command ``train``. Heavy imports wait until a command runs, so that --help answers at once."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from analysis.entry import run as run_app
from train.options import with_settings

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Config = Annotated[
    Path | None, typer.Option(help="TOML file of the settings below; the command line wins.", show_default=False)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings as TOML, and what they plan.")]


@app.callback(invoke_without_command=True)
@with_settings
def train(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("run"),
    config: Config = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="File that analysis policy wrote: --arm, --sigma-sampler and --weighting.", show_default=False
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    dry_run: DryRun = False,
    *,
    given: dict[str, Any],
) -> None:
    """Train a LoRA, by the very step that is probed. Without a command below: one run, of one arm."""
    if context.invoked_subcommand is not None:
        refuse_unheard(context)
        return
    from train.run import describe, run
    from train.settings import check_samples, of_policy, resolve

    settings = resolve(config, given if policy is None else of_policy(policy, given))
    if policy is not None:
        check_samples(policy, settings)
    if dry_run:
        describe(settings)
    else:
        run(settings, out, resuming=resume)


def refuse_unheard(context: typer.Context) -> None:
    """Raise for an option before a command: ``train --dry-run study FILE`` would start the study."""
    from analysis.errors import UsageError
    from train.settings import shown

    command = context.invoked_subcommand
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UsageError(
                f"{shown(name)} before {command} would not be heard: write it after {command}, or leave it"
            )


@app.command()
@partial(with_settings, hidden=("deterministic", "checkpoint_every", "format"))
def certify(
    out: Annotated[Path, typer.Option(help="The certificate, as JSON.")] = Path("certificate.json"),
    config: Config = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also the first steps in two new processes.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Take a certificate of determinism for a run, which is not trained. Exit code 3 if none can be granted."""
    from train.run import certificate
    from train.settings import resolve

    raise typer.Exit(certificate(resolve(config, given | {"deterministic": True}), out, fresh=fresh))


@app.command()
def study(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The study; examples/study.toml explains one.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; default: runs/ and the file's name.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time; changes no byte of them.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the runs, and what sets each apart.")] = False,
) -> None:
    """Make all runs of a study: arms, variants and twins, each in a process of its own.

    What is done is skipped, what was stopped goes on, and a run that fails does not stop the others. Where the file
    says no number of threads, each run has one.
    """
    from train.study.conduct import study

    study(file, out, jobs=jobs, dry_run=dry_run)


@app.command()
def cache(
    model: Annotated[str, typer.Option(help="Folder in diffusers' layout, the whole of it, or a name on the hub.")],
    images: Annotated[Path, typer.Option(help="Folder of photographs; a caption stands beside one in STEM.txt.")],
    tiers: Annotated[str, typer.Option(help="Sides in pixels, the native one and lower ones: 1024,896.")] = "1024,896",
    out: Annotated[Path, typer.Option(help="Folder of the cache; an unfinished one is gone on with.")] = Path("cache"),
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out damaged and too small pictures, and those with a bad caption.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without what repromote and reencode need: less work.")
    ] = False,
    vae_dtype: Annotated[str, typer.Option(help="fp32 or bf16: the autoencoder computes in it.")] = "fp32",
    text_dtype: Annotated[str, typer.Option(help="fp32 or bf16: of the text encoders, in memory too.")] = "bf16",
    device: Annotated[str, typer.Option(help="cpu or cuda; auto: cuda where there is one.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU; default: as torch chooses.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look at the pictures, and say what would be done.")
    ] = False,
) -> None:
    """Encode photographs and captions for a model with an autoencoder, into a folder that --latents takes.

    Pictures are cut and made smaller, never larger, to grids of their aspect in every tier, and encoded anew for each.
    """
    from train.cache.build import Request, cache

    cache(Request(model, images, tiers, skip_bad, plain, vae_dtype, text_dtype, device, threads), out, dry_run=dry_run)


@app.command()
def arms() -> None:
    """List the terms an arm can be made of, and how to write one."""
    import train.arms
    from train.treatments import terms

    print(f"{train.arms.__doc__}\nTerms:")
    for name, parser in terms().items():
        print(f"  {' '.join((parser.__doc__ or name).replace('``', '').split()).rstrip('.')}")


@app.command()
def environment() -> None:
    """Print what is recorded of this machine and its libraries, as JSON, under strict determinism."""
    import json

    from train import determinism
    from train.environment import environment as found

    determinism.strict()
    print(json.dumps(found(), indent=2, sort_keys=True))


@app.command()
def mini(
    out: Annotated[Path, typer.Option(help="Folder of the model; an unfinished one is gone on with.")],
    unpacked: Annotated[Path, typer.Option(help="Where the Debian packages of MODEL_CARD.md are unpacked.")],
    threads: Annotated[int, typer.Option(min=1, help="Of the CPU; the weights' last bits depend on it.")] = 1,
) -> None:
    """Make the shipped mini model, its corpus, adapter and model card from scratch (hours)."""
    from train import determinism
    from train.mini.make import make
    from train.mini.pretrain import Recipe
    from train.mini.warm import Warming

    determinism.set_threads(threads)
    determinism.strict()
    make(out, unpacked, Recipe(), Warming())


def main() -> None:
    """Entry point of the console script."""
    run_app(app)
