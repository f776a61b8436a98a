"""The command ``train``. Heavy imports wait until a command runs, so that --help answers at once."""

from pathlib import Path
from typing import Annotated

import typer

from analysis.entry import run as run_app

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.callback()
def train() -> None:
    """The training step that is probed: its arms, its model families and the shipped mini model."""


@app.command()
def arms() -> None:
    """List the terms an arm can be made of, and how to write one."""
    import train.arms
    from train.treatments import terms

    print(train.arms.__doc__)
    print("terms: " + ", ".join(sorted(terms())))


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
