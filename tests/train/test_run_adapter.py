"""A run that goes on from a LoRA file: rank, alpha and modules are the file's, obeyed and recorded."""

import json

import pytest

from analysis.entry import exit_code
from train import adapter
from train.adapter import Lora
from train.cli import app
from train.run import run

pytestmark = pytest.mark.usefixtures("determinism_put_back")
TARGETS = r".*attn\.to_[qk]"


@pytest.fixture
def file(job_of, tmp_path):
    """An adapter of rank 16, which is the default, and alpha 8, which is not."""
    job = job_of(rank=16, alpha=8.0, targets=TARGETS)
    adapter.save(tmp_path / "given.safetensors", job.parameters, job.lora)
    return tmp_path / "given.safetensors"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rank", "4"], "--rank 4: that of {file} is 16; leave it out"),
        (["--alpha", "16"], "--alpha 16.0: that of {file} is 8.0; leave it out"),
        (["--targets", r".*attn\.to_q"], r"--targets .*attn\.to_q: other modules than those of {file}"),
        (["--targets", "("], "target modules '(': no regular expression"),
        (["--config", "rank = 4"], "--rank 4: that of {file} is 16"),
        (["--rank", "16", "--alpha", "8", "--targets", TARGETS], None),
        ([], None),
    ],
)
def test_what_is_not_the_files_is_refused_and_what_is_printed_is(file, tiny, tmp_path, capsys, options, message):
    if options[:1] == ["--config"]:
        (tmp_path / "run.toml").write_text(options[1])
        options = ["--config", str(tmp_path / "run.toml")]
    command = ["--dry-run", "--model", str(tiny), "--adapter", str(file), *options]
    code = exit_code(app, command, name="train")
    told = capsys.readouterr()
    if message is None:
        assert code == 0
        assert "rank = 16\nalpha = 8.0\n" in told.out
        (tmp_path / "again.toml").write_text(told.out)
        assert exit_code(app, ["--dry-run", "--config", str(tmp_path / "again.toml")], name="train") == 0
        assert capsys.readouterr().out == told.out
    else:
        assert (code, told.out, message.format(file=file) in told.err) == (2, "", True), told.err


def test_the_record_is_the_files(settings_of, tmp_path, file):
    run(settings_of(steps=1, adapter=str(file), rank=2), tmp_path / "run", resuming=False)
    settings = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]
    assert (settings["rank"], settings["alpha"]) == (16, 8.0)
    _, lora = adapter.read(tmp_path / "run" / "adapter.safetensors")
    assert lora == Lora(16, 8.0, adapter.read(file)[1].targets)
