"""What a finished run owes its owner: its files at the end, its sums, and a word on what cannot be had again."""

import json
import shutil
from dataclasses import replace

import pytest

from analysis.errors import UsageError
from analysis.run_folder import METRICS, checkpoint_folder
from train.run import run

pytestmark = pytest.mark.usefixtures("determinism_put_back")


@pytest.fixture
def copy(finished, tmp_path):
    """Settings and a copy of a finished run's folder."""
    settings, out = finished
    shutil.copytree(out, tmp_path / "run")
    return settings, tmp_path / "run"


def flip(file, at=-1):
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), flip, lambda file: file.write_bytes(b"half")])
@pytest.mark.parametrize("name", ["adapter.safetensors", "summary.json"])
def test_a_file_at_the_end_that_is_lost_or_damaged_is_written_again(copy, capsys, spoil, name):
    settings, out = copy
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    spoil(out / name)
    run(settings, out, resuming=True)
    told = f"its 6 steps were done before; written again, as its last checkpoint says: {name}\n"
    assert capsys.readouterr().err.endswith(told)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_kohyas_form_can_be_had_later(copy, capsys):
    settings, out = copy
    for repeat in range(3):
        if repeat == 2:
            flip(out / "adapter-kohya.safetensors")
        run(replace(settings, format="kohya"), out, resuming=True)
        assert ("adapter-kohya.safetensors" in capsys.readouterr().err) == (repeat != 1)
    run(replace(settings, format="kohya"), out.with_name("other"), resuming=False)
    one, other = (folder / "adapter-kohya.safetensors" for folder in (out, out.with_name("other")))
    assert one.read_bytes() == other.read_bytes()


def test_a_longer_run_that_was_killed_before_its_end_files_gets_them(copy, finished):
    """The files at the end are then those of the shorter run."""
    settings, whole = finished
    _, out = copy
    run(replace(settings, steps=3), out.with_name("short"), resuming=False)
    for name in ("adapter.safetensors", "summary.json"):
        shutil.copy(out.with_name("short") / name, out / name)
    run(settings, out, resuming=True)
    for name in ("adapter.safetensors", "summary.json"):
        assert (out / name).read_bytes() == (whole / name).read_bytes()


def test_the_sums_are_of_the_whole_run_however_many_processes_took_it(settings_of, finished, tmp_path):
    settings, whole = finished
    run(replace(settings, steps=3), tmp_path / "run", resuming=False)
    run(settings, tmp_path / "run", resuming=True)
    rows = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    found, expected = (json.loads((out / "summary.json").read_text()) for out in (tmp_path / "run", whole))
    assert found["attention_calls"] == expected["attention_calls"] == {"sdpa, not deterministic": 12}
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in rows), abs=1e-3)
    assert found["tokens"] == expected["tokens"]


def test_a_certificate_that_was_lost_is_missed_and_none_is_made_up(copy, capsys):
    settings, out = copy
    (out / "certificate.json").unlink()
    run(settings, out, resuming=True)
    assert "certificate.json is missing, and cannot be taken for steps that are done" in capsys.readouterr().err
    assert not (out / "certificate.json").exists()


@pytest.mark.parametrize("name", ["adapter.safetensors", "optimizer.safetensors", "sha256.json"])
@pytest.mark.parametrize("spoil", [lambda file: file.unlink(), lambda file: flip(file, -9)], ids=["lost", "a bit"])
def test_a_checkpoint_that_changed_is_refused_with_the_remedy(copy, finished, name, spoil):
    settings, out = copy
    place = checkpoint_folder(out, 6)
    spoil(place / name)
    with pytest.raises(UsageError, match=f"is not what the run wrote .*: remove {place} to go on from before it") as e:
        run(settings, out, resuming=True)
    assert "\n" not in str(e.value)
    shutil.rmtree(place)
    run(settings, out, resuming=True)
    assert (out / "adapter.safetensors").read_bytes() == (finished[1] / "adapter.safetensors").read_bytes()


def test_half_a_line_is_dropped_after_the_last_checkpoint_and_refused_before_it(copy, finished):
    settings, out = copy
    whole = (out / METRICS).read_bytes()
    for beyond in (b'{"step": 7, "torn', b"\xff\xfe\n", whole.splitlines(keepends=True)[0]):
        (out / METRICS).write_bytes(whole + beyond)
        run(settings, out, resuming=True)
        assert (out / METRICS).read_bytes() == whole
    lines = whole.splitlines(keepends=True)
    for spoilt, message in (
        (whole[:-20], "line 6 is not step 6, whole"),
        (b"".join([*lines[:2], b"\xff\n", *lines[3:]]), "line 3 is not step 3, whole"),
        (b"".join([*lines[:2], *lines[3:], lines[5]]), "line 3 is not step 3, whole"),
        (b"".join(lines[:5]), "5 lines, 6 steps are done"),
    ):
        (out / METRICS).write_bytes(spoilt)
        with pytest.raises(UsageError, match=message) as error:
            run(settings, out, resuming=True)
        assert "\n" not in str(error.value)
        assert (out / METRICS).read_bytes() == spoilt
    (out / METRICS).write_bytes(whole[:-1])  # whole but for its newline
    run(settings, out, resuming=True)
    assert (out / METRICS).read_bytes() == whole


def test_a_run_that_begins_where_one_was_to_go_on_says_so(settings_of, tmp_path, capsys):
    run(settings_of(steps=1), tmp_path / "run", resuming=True)
    assert f"no run in {tmp_path / 'run'} yet: beginning one" in capsys.readouterr().err
