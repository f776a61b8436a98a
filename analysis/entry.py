"""How every command of this project ends: results on standard output, one line on standard error, and an exit code.

    def main() -> None:
        run(app)

0 done (or the command's own code), 2 usage or bad input, 3 refused, 70 an internal error, 130 interrupted, 141 nobody
reads the output any more. ``SIGMA_PROBES_DEBUG=1`` shows the traceback behind a line.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from analysis.disk import FULL
from analysis.errors import Refused, UsageError

DEBUG = "SIGMA_PROBES_DEBUG"
USAGE, INTERNAL, INTERRUPTED, BROKEN_PIPE = 2, 70, 130, 141


def run(app: typer.Typer) -> NoReturn:
    """Run the command line of this process and leave with its exit code."""
    sys.exit(exit_code(app, sys.argv[1:], name=Path(sys.argv[0]).name))


def exit_code(app: typer.Typer, arguments: Sequence[str], *, name: str) -> int:
    """Run ``app`` with ``arguments``. Whatever goes wrong is one line on standard error that starts with ``name``."""
    try:
        code = _invoke(app, arguments, name)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except (UsageError, Refused) as error:
        return _say(name, str(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _say(name, "interrupted", INTERRUPTED)
    except Exception as error:  # noqa: BLE001 - the last resort of a command: reported, with code 70
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:  # no file: it is the output
            _discard_output()
            return _say(name, "no space left for the output: what was printed is not whole; print it elsewhere", USAGE)
        if hasattr(error, "format_message"):  # the parser's own errors, whose classes moved between versions of typer
            return _say(name, _usage_line(error), USAGE)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return _say(name, f"internal error: {reason} (set {DEBUG}=1 for the traceback)", INTERNAL)
    return _say(name, "interrupted", code) if code == INTERRUPTED else code


def png_file(path: Path | None) -> Path | None:
    """What an option ``--png`` takes: asked when it is read, before anything is computed."""
    if path is not None and path.suffix.lower() != ".png":
        raise UsageError(f"--png {path}: pictures are PNG; give a name that ends in .png")
    return path


def _discard_output() -> None:
    """Python flushes standard output once more when it leaves: give it somewhere to flush to."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _invoke(app: typer.Typer, arguments: Sequence[str], name: str) -> int:
    try:
        result = typer.main.get_command(app).main(list(arguments), prog_name=name, standalone_mode=False)
    except SystemExit as left:
        # Typer leaves with 1 when its output is closed, which a gate would read as an answer.
        if isinstance(left.__context__, BrokenPipeError):
            raise left.__context__ from None
        raise
    return result if isinstance(result, int) else 0


def _usage_line(error: Exception) -> str:
    message: str = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if type(error).__name__ == "NoArgsIsHelpError":
        return "no command given: see --help"
    return f"{' '.join(lines).rstrip('.')}: see --help"


def _say(name: str, message: str, code: int) -> int:
    if os.environ.get(DEBUG) and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print(f"{name}: {' '.join(message.splitlines())}", file=sys.stderr)
    return code
