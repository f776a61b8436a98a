"""Where runs and certificates may be written: nothing of anybody's is replaced, and it is known before any work."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.errors import UsageError
from train import places
from train import run as running
from train.certificate import NOT_ASKED
from train.run import certificate, run


@pytest.fixture(autouse=True)
def no_work(monkeypatch):
    """Whatever is refused here is refused before a model is loaded."""
    monkeypatch.setattr(running, "begin", None)


@pytest.mark.parametrize(
    "text", ['{"command": "train", "settings": {}}', '{"granted": true}', "[]", "not JSON", "", "\xff"]
)
def test_a_certificate_replaces_only_a_certificate(settings_of, tmp_path, text):
    out = tmp_path / "run.json"
    out.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=r"run.json is there and is no certificate: give another --out"):
        certificate(settings_of(), out, fresh=False)
    assert out.read_text(encoding="latin-1") == text
    out.write_text(json.dumps(replace(NOT_ASKED).as_json()))
    places.check_certificate(out)


def test_a_certificate_needs_a_folder(settings_of, tmp_path):
    for out, message in (
        (tmp_path, "is there and is no certificate"),
        (tmp_path / "no" / "c.json", r"c.json: nothing can be written in .*/no \(No such file or directory\)"),
    ):
        with pytest.raises(UsageError, match=message):
            certificate(settings_of(), out, fresh=False)


def test_a_run_needs_a_folder_of_its_own(settings_of, tmp_path):
    (tmp_path / "file").write_text("keep")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "run.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "run" / "checkpoints")
    for out, message in (
        ("file", "file is no folder: give another --out"),
        ("dangling", "dangling is no folder: give another --out"),
        ("loop", "loop is no folder: give another --out"),
        ("file/x", "file/x: nothing can be written in .*/file \\(Not a directory\\)"),
        ("loop/x", "loop/x: nothing can be written in .*/loop \\("),
        ("run/x", "run/x lies in the folder of another run, .*/run: give another --out"),
        ("run/checkpoints/deep/x", "lies in the folder of another run"),
        ("link/x", "lies in the folder of another run"),
    ):
        for resuming in (False, True):
            with pytest.raises(UsageError, match=message) as error:
                run(settings_of(), tmp_path / out, resuming=resuming)
            assert "\n" not in str(error.value)
    assert (tmp_path / "file").read_text() == "keep"
    places.check_run(tmp_path / "run")  # the run itself, which may be gone on with
    places.check_run(tmp_path / "new" / "deep")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs Linux' folder of processes")
def test_a_folder_that_takes_no_file_is_named(settings_of):
    with pytest.raises(UsageError, match=r"/proc/x: nothing can be written in /proc \("):
        run(settings_of(), Path("/proc/x"), resuming=False)
