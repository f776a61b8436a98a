"""The file of a study: the runs it asks for, and what a mistake in it is told."""

import json
from dataclasses import asdict, fields, replace
from pathlib import Path

import pytest
import typer

from analysis.entry import exit_code
from analysis.errors import UsageError
from train.cli import app
from train.settings import Settings, type_of
from train.study import file, runs

EXAMPLES = Path(__file__).parents[2] / "examples"
ONE = '[[arms]]\nname = "native"\n'


def file_of(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_variant_takes_every_arm_and_every_arm_its_twins(tmp_path):
    text = (
        "[settings]\nsteps = 7\nattention = 'math'\n"
        "[[variants]]\nname = 'racing'\nattention = 'racing'\nrank = 2\n"
        "[[variants]]\nname = 'strict'\ndeterministic = true\n"
        "[[arms]]\nname = 'native'\ntwins = 2\n"
        "[[arms]]\nname = 's05'\narm = 'demote:56@0.5'\nsteps = 9\nrank = 8\n"
    )
    found = {run.name: run for run in runs.runs_of(file.read(file_of(tmp_path, text)))}
    names = ["native", "native-twin1", "native-twin2", "s05"]
    assert list(found) == [f"{variant}/{name}" for variant in ("racing", "strict") for name in names]
    racing = Settings(steps=7, attention="racing", rank=2, threads=1)
    assert found["racing/native"].settings == found["racing/native-twin2"].settings == racing
    assert [run.twin for run in found.values()] == [0, 1, 2, 0] * 2
    # The arm wins over the variant, and that over what all share.
    assert found["racing/s05"].settings == replace(racing, arm="demote:56@0.5", steps=9, rank=8)
    assert found["strict/native"].settings == Settings(steps=7, attention="math", deterministic=True, threads=1)


def test_without_variants_runs_lie_beside_each_other_and_threads_can_be_chosen(tmp_path):
    asked = file.read(file_of(tmp_path, f"[settings]\nthreads = 3\nbatch-size = 2\n{ONE}twins = 1\n"))
    assert [run.name for run in runs.runs_of(asked)] == ["native", "native-twin1"]
    assert runs.runs_of(asked)[1].settings == Settings(threads=3, batch_size=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no arms; write at least one [[arms]]"),
        ("arms = []", "no arms"),
        ("arms = 3", "arms is no list of tables; write [[arms]] above each"),
        ("[arms]\nname = 'a'", "arms is no list of tables"),
        (f"settings = 3\n{ONE}", "settings = 3; write a table"),
        (f"[setings]\n{ONE}", "unknown table setings; the nearest is settings"),
        (f"steps = 3\n{ONE}", "unknown table steps;"),
        (f"[settings]\nstep = 3\n{ONE}", "[settings]: unknown setting step; the nearest is steps"),
        (f"[settings]\nsteps = '3'\n{ONE}", "[settings]: steps = '3'; it takes a whole number"),
        (f"[settings]\nadamw = 'sgd'\n{ONE}", "[settings]: --adamw sgd: takes single, foreach, fused"),
        (f"[settings]\nbatch-size = 3\nbatch_size = 3\n{ONE}", "[settings]: batch_size is given twice"),
        (f"{ONE}twin = 1", 'arms[1] "native": unknown setting twin; the nearest is twins'),
        (f"{ONE}twins = -1", 'arms[1] "native": twins = -1; it takes a whole number, 0 to 100'),
        (f"{ONE}twins = true", 'arms[1] "native": twins = True; it takes a whole number'),
        (f"{ONE}steps = 0", 'arms[1] "native": --steps 0: takes 1 or more'),
        (f"{ONE}beta2 = 1.0", "run native: beta1 0.9, beta2 1: both take 0 to below 1"),
        ("[[arms]]\narm = 'native'", "arms[1]: no name; it takes a text"),
        ("[[arms]]\nname = 3", "arms[1]: name = 3; it takes a text"),
        (f"{ONE}{ONE}", 'arms[2] "native": arms[1] has this name too'),
        (f"{ONE}twins = 1\n[[arms]]\nname = 'native-twin1'", 'its native-twin1 would also be one of arms[1] "native"'),
        (f"{ONE}[[arms]]\nname = 'native.log'", 'its native.log would also be one of arms[1] "native"'),
        (f"{ONE}[[variants]]\nname = 'a'\n[[variants]]\nname = 'a'", 'variants[2] "a": variants[1] has this name too'),
        (f"{ONE}[[variants]]\nname = 'a'\ntwins = 1", 'variants[1] "a": unknown setting twins'),
        (f"{ONE}[[variants]]\nrank = 2", "variants[1]: no name"),
        ("arms = ", "not a readable TOML file"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_the_entry(tmp_path, text, message):
    with pytest.raises(UsageError) as error:
        runs.runs_of(file.read(file_of(tmp_path, text)))
    assert str(error.value).startswith(f"{tmp_path / 'study.toml'}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a\\b", " a", "a ", "a\nb", "a\0b", "a" * 61])
def test_a_name_is_that_of_a_folder(tmp_path, name):
    with pytest.raises(UsageError, match=r"arms\[1\] .*no name for a folder") as error:
        file.read(file_of(tmp_path, f"[[arms]]\nname = {json.dumps(name)}\n"))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path):
    for path in (tmp_path / "nowhere.toml", tmp_path):
        with pytest.raises(UsageError, match="not a readable TOML file"):
            file.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ONE}arm = 'demote:x'", 'arms[1] "native": '),
        (f"{ONE}[[arms]]\nname = 'b'\narm = 'demot:56'", "arms[2] \"b\": arm term 'demot:56': unknown treatment"),
        (f"[settings]\nattention = 'flask'\n{ONE}", "[settings]: attention backend 'flask'"),
        (f"[settings]\nsigma_sampler = 'x'\n{ONE}", "[settings]: sigma sampler 'x'"),
        (f"{ONE}[[variants]]\nname = 'v'\nweighting = 'x'", 'variants[1] "v": '),
    ],
)
def test_grammar_is_checked_before_anything_is_written(tmp_path, capsys, text, message):
    out = tmp_path / "new" / "out"
    assert exit_code(app, ["study", str(file_of(tmp_path, text)), "--out", str(out)], name="train") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"train: {tmp_path / 'study.toml'}: {message}")
    assert told.count("\n") == 1
    assert not out.parent.exists()


def test_the_command_of_a_run_says_its_settings_again():
    """Every setting at another value than its default: what the command line makes of the words is the same."""
    other = {"str": "a 'b' -c", "int": 3, "float": 0.1 + 0.2, "bool": True}
    changes = {
        each.name: each.metadata["choices"][-1] if each.metadata["choices"] else other[type_of(each.name).__name__]
        for each in fields(Settings)
    }
    for settings in (Settings(), Settings(**(changes | {"seed": -1, "targets": "-x"}))):
        words = runs.command(settings, Path("-out"))
        context = typer.main.get_command(app).make_context("train", words[1:])
        given = {name: context.params[name] for name in asdict(settings)}
        assert Settings(**{name: value for name, value in given.items() if value is not None}) == settings
        assert context.params["resume"]
        assert context.params["out"] == words[-1] == "-out"


@pytest.mark.parametrize("example", sorted(EXAMPLES.rglob("*.toml")), ids=lambda path: path.name)
def test_the_examples_resolve(example, tmp_path, capsys):
    arguments = ["study", str(example), "--dry-run", "--out", str(tmp_path / "out")]
    assert exit_code(app, arguments, name="train") == 0
    told = capsys.readouterr().out.splitlines()
    found = runs.runs_of(file.read(example))
    assert [line.split()[0] for line in told[:-1]] == [run.name for run in found]
    assert told[-1].startswith(f"{len(found)} runs, {runs.steps_of(found)} steps")
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_sets_each_run_apart(tmp_path, capsys):
    text = f"[settings]\nsteps = 5\n{ONE}twins = 1\n[[arms]]\nname = 's05'\narm = 'demote:56@0.5'\nsteps = 3\n"
    assert exit_code(app, ["study", str(file_of(tmp_path, text)), "--dry-run"], name="train") == 0
    assert capsys.readouterr().out.splitlines() == [
        "native        5 steps  the shared settings",
        "native-twin1  5 steps  the shared settings; twin 1",
        's05           3 steps  arm = "demote:56@0.5", steps = 3',
        "3 runs, 13 steps, in runs/study",
    ]


def test_an_option_before_the_command_is_not_passed_over(tmp_path, capsys):
    path = str(file_of(tmp_path, ONE))
    for option in (["--dry-run"], ["--steps", "3"], ["--out", "x"]):
        assert exit_code(app, [*option, "study", path], name="train") == 2
        assert capsys.readouterr().err.startswith(f"train: {option[0]} before study would not be heard")
    assert not (tmp_path / "runs").exists()
