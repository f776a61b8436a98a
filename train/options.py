"""The command line's options for a run, made from ``Settings``: a setting is declared once."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import Field, fields
from typing import Annotated, Any

import typer

from train.settings import Settings, shown, type_of


def with_settings(command: Callable[..., None], hidden: Collection[str] = ()) -> Callable[..., None]:
    """``command``, whose last parameter is ``given``, with an option for every setting in its place.

    What was not given is None, so that a TOML file can say it. hidden: settings without meaning here, which --help
    leaves out.
    """
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "given"]
    names = [each.name for each in fields(Settings)]

    def filled(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in names}
        command(**arguments, given=given)

    parameters = [*own, *(parameter(each, hidden=each.name in hidden) for each in fields(Settings))]
    signature = inspect.Signature([p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters])
    filled.__signature__ = signature
    filled.__annotations__ = {p.name: p.annotation for p in parameters}
    filled.__doc__, filled.__name__ = command.__doc__, command.__name__
    return filled


def parameter(setting: Field[Any], *, hidden: bool) -> inspect.Parameter:
    """One option; its help ends with the default, where the text does not say it."""
    text = setting.metadata["help"]
    if setting.default is not None and setting.default is not False:
        text += f" [default: {setting.default}]"
    kind = type_of(setting.name)
    words = "|".join(setting.metadata["choices"]) or None
    option = typer.Option(shown(setting.name), help=text, show_default=False, metavar=words, hidden=hidden)
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )
