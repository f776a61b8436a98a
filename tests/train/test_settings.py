"""Settings from a TOML file and the command line: who wins, and what a mistake is told."""

from dataclasses import asdict

import pytest

from analysis.errors import UsageError
from train.settings import Settings, resolve, toml


def file_of(tmp_path, text):
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_command_line_wins_over_the_file_and_the_file_over_the_default(tmp_path):
    file = file_of(tmp_path, 'steps = 7\nbatch-size = 3\narm = "demote:56"\nlearning_rate = 1\n')
    found = resolve(file, {"steps": 9, "rank": None, "deterministic": False})
    assert (found.steps, found.batch_size, found.arm, found.rank) == (9, 3, "demote:56", Settings().rank)
    assert found.learning_rate == 1.0
    assert type(found.learning_rate) is float


def test_what_is_printed_gives_the_same_settings_again(tmp_path):
    settings = Settings(arm="demote:56@0.5", targets='a\\.b"c', compile=True, alpha=0.1, beta2=0.99, epsilon=1e-12)
    assert resolve(file_of(tmp_path, toml(settings)), {}) == settings
    assert resolve(file_of(tmp_path, toml(Settings())), {}) == Settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rte = 1", "unknown setting learning_rte; the nearest is learning_rate"),
        ("steps = 1.5", "steps = 1.5; it takes a whole number"),
        ("steps = true", "steps = True; it takes a whole number"),
        ("compile = 1", "compile = 1; it takes true or false"),
        ('learning_rate = "1e-3"', "it takes a number"),
        ("arm = 3", "arm = 3; it takes text"),
        ("steps = ", "not a readable TOML file"),
        ("steps = 1\nsteps = 2", "not a readable TOML file"),
        ("[train]\nsteps = 1", "a table [train]; settings stand in the file without one"),
        ('out = "runs/a"', "out belongs to the command line alone; give it there, as --out"),
        ("dry-run = true", "dry-run belongs to the command line alone; give it there, as --dry-run"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path, text, message):
    with pytest.raises(UsageError) as error:
        resolve(file_of(tmp_path, text), {})
    assert message in str(error.value)
    assert "run.toml" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mark_of_its_encoding_before_the_file_is_no_matter(tmp_path):
    assert resolve(file_of(tmp_path, "\ufeffsteps = 7\n"), {}).steps == 7


def test_a_folder_is_no_file_of_settings(tmp_path):
    with pytest.raises(UsageError, match=r"^--config .*: a folder; give a TOML file"):
        resolve(tmp_path, {})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere.toml: not a readable TOML file"):
        resolve(tmp_path / "nowhere.toml", {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 0}, "--rank 0: takes 1 or more"),
        ({"steps": 0}, "--steps 0: takes 1 or more"),
        ({"learning_rate": -1.0}, "--learning-rate -1.0: takes 0 or more, finite"),
        ({"learning_rate": float("nan")}, "--learning-rate nan: takes 0 or more"),
        ({"alpha": float("inf")}, "--alpha inf: takes 0 or more, finite"),
        ({"clip": float("inf")}, "--clip inf: takes 0 or more, finite"),
        ({"steps": 10**400}, "000: takes 10000000 at most"),
        ({"steps": 10**7 + 1}, "--steps 10000001: takes 10000000 at most"),
        ({"batch_size": 10**4 + 1}, "--batch-size 10001: takes 10000 at most"),
        ({"targets": ""}, "--targets '': an empty text; leave it out"),
        ({"latents": ""}, "--latents '': an empty text"),
        ({"adapter": ""}, "--adapter '': an empty text"),
        ({"model": ""}, "--model '': an empty text"),
        ({"schedule": "step"}, "--schedule step: takes constant, linear, cosine"),
        ({"precision": "fp16"}, "--precision fp16: takes fp32, bf16"),
        ({"beta2": 1.0}, "both take 0 to below 1"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(UsageError) as error:
        Settings(**changes)
    assert message in str(error.value)


def test_every_setting_is_an_option_of_the_command(capsys):
    from analysis.entry import exit_code
    from train.cli import app

    for command in ([], ["certify"]):
        assert exit_code(app, [*command, "--help"], name="train") == 0
        told = capsys.readouterr().out
        missing = [name for name in asdict(Settings()) if f"--{name.replace('_', '-')}" not in told]
        assert missing == (["deterministic", "checkpoint_every", "format"] if command else [])
        assert "--schedule constant|linear|cosine" in told
