"""Runs from end to end: what they write, how they resume, what equals what to the byte, and bad input."""

import json
import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from analysis.entry import exit_code
from analysis.errors import Refused, UsageError
from analysis.file_pairs import compared
from analysis.run_folder import METRICS, checkpoint_folder, checkpoint_steps
from train import checkpoint, tensors_file
from train.cli import app
from train.run import run

pytestmark = pytest.mark.usefixtures("determinism_put_back")


def lines(folder):
    """metrics.jsonl, without the time that each step took."""
    rows = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def same(a, b):
    return compared(a, b).identical and lines(a) == lines(b)


def test_a_run_writes_adapter_checkpoints_metrics_and_how_it_was_made(finished):
    settings, out = finished
    assert {path.name for path in out.iterdir()} == {
        "adapter.safetensors", "certificate.json", "checkpoints", "metrics.jsonl", "run.json", "summary.json"
    }  # fmt: skip
    assert checkpoint_steps(out) == [2, 4, 6]
    last = checkpoint_folder(out, 6)
    assert (last / "adapter.safetensors").read_bytes() == (out / "adapter.safetensors").read_bytes()
    state = load_file(last / "optimizer.safetensors")
    assert len(state) == 2 * len(load_file(out / "adapter.safetensors"))
    made = json.loads((out / "run.json").read_text())
    assert made["settings"]["arm"] == settings.arm
    assert made["hashes"].keys() == {"model", "adapter", "latents"}
    assert made["environment"]["torch"]
    assert json.loads((out / "certificate.json").read_text())["granted"] is False


def test_every_step_is_a_line_and_the_sum_agrees(finished):
    _, out = finished
    rows = lines(out)
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    for row in rows:
        assert row["treated"] == (min(row["sigma"]) > 0.2)
        assert row["tier"] == (56 if row["treated"] else 64)
        assert row["tokens"] == 2 * (196 if row["treated"] else 256)
        assert row["loss"] == pytest.approx(sum(row["losses"]) / 2)
        assert row["gradient_norm"] > 0
    total = json.loads((out / "summary.json").read_text())
    treated = [row["step"] for row in rows if row["treated"]]
    assert 0 < len(treated) < 6
    assert total["treated_steps"] == total["eligible_steps"] == len(treated)
    assert total["first_treated_step"] == treated[0]
    assert total["tokens"] == sum(row["tokens"] for row in rows)
    assert total["attention_calls"] == {"sdpa, not deterministic": 12}


def test_the_same_run_again_is_the_same_to_the_byte(finished, tmp_path):
    settings, out = finished
    run(settings, tmp_path / "again", resuming=False)
    assert same(out, tmp_path / "again")
    run(replace(settings, seed=1), tmp_path / "other", resuming=False)
    assert not compared(out, tmp_path / "other").identical


def test_two_arms_are_equal_until_the_first_treated_step(finished, tmp_path):
    settings, out = finished
    first = json.loads((out / "summary.json").read_text())["first_treated_step"]
    every = [replace(settings, arm=arm, steps=first, checkpoint_every=1) for arm in (settings.arm, "native")]
    for i, one in enumerate(every):
        run(one, tmp_path / str(i), resuming=False)
    for step in range(1, first + 1):
        a, b = (checkpoint_folder(tmp_path / str(i), step) for i in range(2))
        assert compared(a, b).identical == (step < first)


def test_twice_the_steps_are_the_steps_and_a_resume(finished, tmp_path):
    settings, out = finished
    run(replace(settings, steps=3), tmp_path / "run", resuming=False)
    run(settings, tmp_path / "run", resuming=True)
    shutil.rmtree(checkpoint_folder(tmp_path / "run", 3))  # the end of the first half
    assert same(out, tmp_path / "run")


@pytest.mark.parametrize("writes", [1, 2, 3, 4, 6])
def test_a_run_that_broke_inside_a_write_goes_on_and_ends_the_same(finished, tmp_path, monkeypatch, writes):
    """The disk fails at one of the tensors files: adapter or optimiser of a checkpoint, half written."""
    settings, out = finished
    write, count = tensors_file.write, 0

    def failing(path, tensors, metadata):
        nonlocal count
        count += 1
        if count == writes:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        write(path, tensors, metadata)

    monkeypatch.setattr(tensors_file, "write", failing)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", resuming=False)
    assert checkpoint_steps(tmp_path / "run") == [2, 4, 6][: (writes - 1) // 2]
    run(settings, tmp_path / "run", resuming=True)
    assert same(out, tmp_path / "run")


def test_lines_after_the_last_checkpoint_are_written_anew(finished, tmp_path):
    settings, out = finished
    shutil.copytree(out, tmp_path / "run")
    shutil.rmtree(checkpoint_folder(tmp_path / "run", 6))
    for name in ("summary.json", "adapter.safetensors"):
        (tmp_path / "run" / name).unlink()
    with (tmp_path / "run" / METRICS).open("a") as file:
        file.write('{"step": 7, "torn')
    run(settings, tmp_path / "run", resuming=True)
    assert same(out, tmp_path / "run")


def test_a_finished_run_is_left_alone(finished, capsys):
    settings, out = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    run(settings, out, resuming=True)
    assert "its 6 steps were done before" in capsys.readouterr().err
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 3}, "setting seed is 3, it was 0"),
        ({"rank": 4}, "setting rank is 4, it was 2"),
        ({"arm": "native"}, 'setting arm is "native", it was "demote:56@0.2"'),
        ({"images": 3}, "setting images is 3, it was null"),
        ({"steps": 5}, "--steps 5: 6 are done in"),
    ],
)
def test_another_run_is_not_gone_on_with(finished, changes, message):
    settings, out = finished
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UsageError) as error:
        run(replace(settings, **changes), out, resuming=True)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


def test_a_run_whose_plan_looks_ahead_is_not_prolonged(settings_of, tmp_path):
    for i, changes in enumerate(({"schedule": "cosine"}, {"arm": "demote:56/late:0.5"})):
        out = tmp_path / str(i)
        run(settings_of(steps=2, **changes), out, resuming=False)
        with pytest.raises(UsageError, match="was planned for 2, on which its placement or schedule depends"):
            run(settings_of(steps=4, **changes), out, resuming=True)


def test_a_folder_that_holds_anything_is_not_written_into(finished, tmp_path):
    settings, out = finished
    with pytest.raises(UsageError, match="is not empty: give --resume"):
        run(settings, out, resuming=False)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(UsageError, match="is not empty"):
        run(settings, tmp_path / "mine", resuming=False)
    with pytest.raises(UsageError, match=r"holds no run that train made \(run.json"):
        run(settings, tmp_path / "mine", resuming=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_resuming_where_nothing_is_begins(finished, tmp_path):
    settings, out = finished
    run(settings, tmp_path / "run", resuming=True)
    assert same(out, tmp_path / "run")


@pytest.mark.parametrize("file", ["adapter.safetensors", "optimizer.safetensors"])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, file):
    settings, out = finished
    shutil.copytree(out, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    damaged = checkpoint_folder(tmp_path / "run", 6) / file
    damaged.write_bytes(damaged.read_bytes()[:-100])
    with pytest.raises(UsageError) as error:
        run(settings, tmp_path / "run", resuming=True)
    assert str(damaged) in str(error.value)
    assert f"not what the run wrote (its SHA-256 is another): remove {damaged.parent}" in str(error.value)


def test_a_checkpoint_of_other_shapes_is_named(finished, tmp_path):
    settings, out = finished
    shutil.copytree(out, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    place = checkpoint_folder(tmp_path / "run", 6) / "adapter.safetensors"
    tensors = load_file(place)
    name = next(iter(tensors))
    tensors_file.write(place, tensors | {name: tensors[name][:, 1:]}, {})
    digests = {file: checkpoint.sha256(place.parent / file) for file in (place.name, "optimizer.safetensors")}
    (place.parent / "sha256.json").write_text(json.dumps(digests))
    with pytest.raises(UsageError, match=r"is \[2, 31\], this model takes \[2, 32\]"):
        run(settings, tmp_path / "run", resuming=True)


def test_a_deterministic_run_does_not_go_on_elsewhere(settings_of, tmp_path):
    settings = settings_of(steps=2, deterministic=True)
    run(settings, tmp_path / "run", resuming=False)
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"cpu": "', '"cpu": "other '))
    with pytest.raises(Refused, match=r"was begun elsewhere: environment cpu is"):
        run(replace(settings, steps=4), tmp_path / "run", resuming=True)


def test_racing_attention_does_not_repeat_and_is_refused_with_the_flag(settings_of, tmp_path):
    settings = settings_of(attention="racing")
    for name in "ab":
        run(settings, tmp_path / name, resuming=False)
    assert not compared(tmp_path / "a", tmp_path / "b").identical
    for changes in ({"attention": "racing"}, {"arm": "attention:racing"}):
        with pytest.raises(Refused, match="--deterministic with attention racing: it cannot be"):
            run(settings_of(deterministic=True, **changes), tmp_path / "c", resuming=False)
    assert not (tmp_path / "c").exists()


def test_an_adapter_is_gone_on_with(finished, tmp_path, settings_of):
    _, out = finished
    run(settings_of(steps=1, adapter=str(out / "adapter.safetensors")), tmp_path / "run", resuming=False)
    found = load_file(tmp_path / "run" / "adapter.safetensors")
    before = load_file(out / "adapter.safetensors")
    for name, tensor in found.items():
        assert tensor.shape == before[name].shape
        assert 0 < float((tensor - before[name]).abs().max()) < 1.1e-3  # one AdamW step at 1e-3


def train(capsys, *arguments):
    capsys.readouterr()
    code = exit_code(app, list(map(str, arguments)), name="train")
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_dry_run_prints_settings_that_a_file_can_hold(capsys, tmp_path, tiny):
    code, out, err = train(capsys, "--dry-run", "--model", tiny, "--arm", "demote:56@0.5", "--out", tmp_path / "no")
    assert code == 0
    assert not (tmp_path / "no").exists()
    assert "of 400; " in err
    (tmp_path / "again.toml").write_text(out)
    code, again, _ = train(capsys, "--dry-run", "--config", tmp_path / "again.toml")
    assert (code, again) == (0, out)
    assert "arm native: nothing treated, in 400 steps; " in train(capsys, "--dry-run", "--model", tiny)[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rank", "0"], "--rank 0: takes 1 or more"),
        (["--arm", "demote:50"], "tier 50: not a multiple"),
        (["--arm", "demot:56"], "unknown treatment 'demot'"),
        (["--sigma-sampler", "normal"], "'normal' is not one"),
        (["--weighting", "snr"], "weighting 'snr'"),
        (["--targets", "nothing"], "target modules 'nothing': none in this model"),
        (["--targets", "("], "target modules '(': no regular expression"),
        (["--targets", ".*"], "target modules '.*': the whole model, a FluxTransformer2DModel, is among them"),
        (["--targets", ".*attn"], "transformer_blocks.0.attn, a FluxAttention, is among them"),
        (["--adapter", "."], ". is a folder: give the safetensors file of an adapter"),
        (["--latents", ""], "--latents '': an empty text"),
        (["--steps", "9" * 23], "takes 10000000 at most"),
        (["--attention", "flash9"], "attention backend 'flash9'"),
        (["--images", "9"], "--images 9: the corpus has 5"),
        (["--device", "cuda"], "--device cuda: torch finds none"),
        (["--adapter", "nowhere.safetensors"], "nowhere.safetensors cannot be read (No such file or directory)"),
        (["--model", "nowhere"], "model nowhere"),
        (["--steps", "many"], "--steps"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, tiny, arguments, message):
    code, out, err = train(capsys, "--model", tiny, *arguments, "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1, err
    assert message in err
    assert not (tmp_path / "run").exists()
