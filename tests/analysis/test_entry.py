"""However a command ends, it is one line on standard error and the promised code."""

import importlib
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import typer

from analysis.entry import exit_code
from analysis.errors import Refused, UsageError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
ERRORS = {
    "usage": UsageError("got 3; want 1 or 2"),
    "refused": Refused("no floor measured"),
    "interrupt": KeyboardInterrupt(),
    "bug": ZeroDivisionError("two\nlines"),
}


@app.callback()
def tool() -> None:
    """A tool."""


@app.command()
def fail(kind: str) -> None:
    raise ERRORS[kind]


@app.command()
def leave(code: int) -> None:
    print("result")
    raise typer.Exit(code)


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["fail", "usage"], 2, "tool: got 3; want 1 or 2\n"),
        (["fail", "refused"], 3, "tool: no floor measured\n"),
        (["fail", "interrupt"], 130, "tool: interrupted\n"),
        (
            ["fail", "bug"],
            70,
            "tool: internal error: ZeroDivisionError: two (set SIGMA_PROBES_DEBUG=1 for the traceback)\n",
        ),
        (["leave", "x"], 2, None),
        (["fail"], 2, None),
        (["nothing"], 2, None),
        (["fail", "usage", "--nope"], 2, None),
        (["leave", "0"], 0, ""),
        (["leave", "3"], 3, ""),
    ],
)
def test_the_exit_code_and_the_one_line(arguments: list[str], code: int, line: str | None, capsys) -> None:
    assert exit_code(app, arguments, name="tool") == code
    said = capsys.readouterr().err
    assert said.count("\n") == (0 if said == "" else 1)
    if line is not None:
        assert said == line
    else:
        assert said.startswith("tool: ")
        assert said.endswith(": see --help\n")


def test_the_traceback_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("SIGMA_PROBES_DEBUG", "1")
    assert exit_code(app, ["fail", "bug"], name="tool") == 70
    assert "Traceback" in capsys.readouterr().err


PIPED = """
    import typer
    from analysis.entry import run
    app = typer.Typer()
    @app.command()
    def talk():
        for _ in range(100_000):
            print("a line that is long enough to fill the pipe")
        raise typer.Exit(0)
    run(app)
"""


def test_a_reader_that_leaves_is_no_error_and_no_answer() -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PIPED)]
    talker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert talker.stdout is not None
    assert talker.stderr is not None
    talker.stdout.readline()
    talker.stdout.close()
    said = talker.stderr.read()
    talker.stderr.close()
    assert talker.wait(60) == 141
    assert said == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("lines", ["1", "100_000"])
def test_an_output_that_is_full_is_one_line_and_bad_usage(lines: str) -> None:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PIPED).replace("100_000", lines)]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith(": no space left for the output: what was printed is not whole; print it elsewhere\n")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--help"], ["safety", "--help"]])
def test_help_needs_nothing_heavy(arguments: list[str]) -> None:
    """Half a second of processor time, a fraction of it used: what is not imported costs nothing."""
    script = (
        "import sys; from analysis.entry import exit_code; from analysis.cli import app\n"
        f"code = exit_code(app, {arguments!r}, name='analysis')\n"
        "heavy = {'numpy', 'xarray', 'scipy', 'zarr', 'matplotlib', 'pandas', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    before = os.times()
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent)
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage" in done.stdout
    assert min(spent, time.perf_counter() - began) < 0.5


@pytest.mark.parametrize(
    "words",
    [["analysis", "safety", "s.zarr"], ["analysis", "policy", "s.zarr"], ["analysis", "endpoints", "a", "b"],
     ["probes", "horizon"]],
)  # fmt: skip
def test_a_picture_is_asked_for_by_its_ending_before_anything_is_computed(words, capsys):
    name, *arguments = words
    app = importlib.import_module(f"{name}.cli").app
    assert exit_code(app, [*arguments, "--png", "curve.txt"], name=name) == 2
    assert capsys.readouterr().err == (f"{name}: --png curve.txt: pictures are PNG; give a name that ends in .png\n")
