"""``analysis diff`` as it is typed: its answer in one line, the lists below it, and cmp's exit codes."""

import json
import os
import pty
import select
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis import file_pairs
from analysis.cli import app
from analysis.diff import shown
from analysis.entry import exit_code

SCRIPT = Path(sys.executable).with_name("analysis")
TENTH, THIRD = (f"transformer.transformer_blocks.{index}.to_q.lora_A.weight" for index in (10, 3))
EQUAL = "0 / 3 tensors differ, max abs diff 0.0"


def f32(*numbers: float) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", (len(numbers),), np.array(numbers, "<f4").tobytes()


BASE = {
    TENTH: f32(1, 2),
    THIRD: ("BF16", (2,), b"\x80\x3f\x00\x40"),  # 1, 2
    "proj_out.weight": ("F8_E4M3", (2,), b"\x38\x40"),  # 1, 2
}


def diff(*arguments: object) -> int:
    return exit_code(app, ["diff", *map(str, arguments)], name="analysis")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]):
    """Runs the command: its exit code, lines of standard output, standard error."""

    def run(*arguments: object) -> tuple[int, list[str], str]:
        code = diff(*arguments)
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    return run


def test_equal_tensors_in_another_order_are_equal(safetensors_writer, said) -> None:
    a = safetensors_writer("a.safetensors", BASE, {"format": "pt"})
    b = safetensors_writer("b.safetensors", dict(reversed(BASE.items())), {"format": "pt"})
    assert said(a, b) == (0, [EQUAL], "")
    assert said(a, a) == (0, [EQUAL], "")


def test_what_differs_is_named_with_its_block_in_depth_order(safetensors_writer, said) -> None:
    changed = {
        TENTH: f32(1, -2),
        THIRD: ("BF16", (2,), b"\xa0\x3f\x00\x40"),  # 1.25, 2
        "proj_out.weight": ("F8_E4M3", (2,), b"\x39\x40"),  # 1.125, 2
    }
    a, b = safetensors_writer("a.safetensors", BASE), safetensors_writer("b.safetensors", changed)
    code, lines, err = said(a, b)
    assert (code, err) == (1, "")
    assert lines == [
        "3 / 3 tensors differ, max abs diff 4.0",
        "  other                  proj_out.weight: 1 of 2 elements, max abs diff 0.125",
        f"  transformer_blocks.3   {THIRD}: 1 of 2 elements, max abs diff 0.25",
        f"  transformer_blocks.10  {TENTH}: 1 of 2 elements, max abs diff 4.0",
    ]
    _, lines, _ = said(a, b, "--first", 1)
    assert lines[2:] == ["  ... 2 more differ (--first 0 lists all)"]
    assert len(said(a, b, "--first", 0)[1]) == 4


@pytest.mark.parametrize(
    ("a", "b", "line"),
    [
        (f32(0.0, 1), f32(-0.0, 1), "1 of 2 elements, max abs diff 0.0 (-0.0 against 0.0)"),
        (f32(1, np.nan), f32(3, 1), "2 of 2 elements, max abs diff 2.0 (1 NaN on one side)"),
        (f32(np.nan), f32(1), "1 of 1 elements, max abs diff undefined (1 NaN on one side)"),
        (f32(np.inf, 1), f32(5, 2), "2 of 2 elements, max abs diff 1.0 (1 infinite)"),
        (("I64", (), b"\xff" * 8), ("I64", (), b"\xff" * 7 + b"\x7f"),
         "1 of 1 elements, max abs diff 9223372036854775808"),
        (("BOOL", (2,), b"\0\1"), ("BOOL", (2,), b"\1\1"), "1 of 2 elements, max abs diff 1"),
        (("F4", (4,), b"\0\1"), ("F4", (4,), b"\0\2"), "1 of 2 bytes, max abs diff undefined (formats without values)"),
        (f32(1, 2), ("F32", (2, 1), f32(1, 2)[2]), "F32 [2] in A, F32 [2, 1] in B"),
        (f32(1), ("I32", (1,), f32(1)[2]), "F32 [1] in A, I32 [1] in B"),
    ],
)  # fmt: skip
def test_each_kind_of_difference_is_told_as_what_it_is(safetensors_writer, said, a, b, line: str) -> None:
    files = safetensors_writer("a.safetensors", {"w": a}), safetensors_writer("b.safetensors", {"w": b})
    code, lines, err = said(*files)
    assert (code, lines[1:], err) == (1, [f"  other  w: {line}"], "")


def test_nan_of_the_same_bits_is_equal(safetensors_writer, said) -> None:
    files = [safetensors_writer(name, {"w": f32(np.nan)}) for name in ("a.safetensors", "b.safetensors")]
    assert said(*files)[0] == 0


def test_another_layout_alone_has_no_distance(safetensors_writer, said) -> None:
    a = safetensors_writer("a.safetensors", {"w": f32(1)})
    b = safetensors_writer("b.safetensors", {"w": ("F16", (1,), b"\0\x3c")})
    assert said(a, b)[1][0] == "1 / 1 tensors differ, 1 of another dtype or shape, max abs diff undefined"


def test_missing_and_extra_tensors_are_named(safetensors_writer, said) -> None:
    a = safetensors_writer("a.safetensors", BASE | {"only.1.here": f32(1), "only.0.here": f32(1)})
    b = safetensors_writer("b.safetensors", BASE | {"there": f32(1)})
    code, lines, _ = said(a, b)
    assert code == 1
    assert lines == [
        "0 / 3 tensors differ, 2 tensors only in A, 1 tensor only in B, max abs diff 0.0",
        "  tensor only in A: only.0.here",
        "  tensor only in A: only.1.here",
        "  tensor only in B: there",
    ]
    assert said(a, b, "--first", 1)[1][2] == "  ... 1 more only in A (--first 0 lists all)"


def test_metadata_stand_apart_and_count_only_when_asked(safetensors_writer, said) -> None:
    long = {side: json.dumps({"filler": "x" * 50, "alpha": alpha, "r": 4}) for side, alpha in (("a", 4.0), ("b", 8.0))}
    a = safetensors_writer("a.safetensors", BASE, {"format": "pt", "lora": long["a"], "mine": "1"})
    b = safetensors_writer("b.safetensors", BASE, {"format": "np", "lora": long["b"]})
    told = (
        "format 'pt' in A, 'np' in B; lora '...xxxx\", \"alpha\": 4.0, \"r\": 4}' in A, "
        '\'...xxxx", "alpha": 8.0, "r": 4}\' in B; only in A: mine'
    )
    assert said(a, b) == (0, [EQUAL, f"  metadata differ (not counted without --metadata): {told}"], "")
    assert said(a, b, "--metadata") == (1, [EQUAL, f"  metadata differ (counted): {told}"], "")
    assert said(a, a, "--metadata") == (0, [EQUAL], "")


def test_json_is_one_object_with_every_name(safetensors_writer, said) -> None:
    a = safetensors_writer("a.safetensors", BASE | {"blocks.0.x": f32(np.nan, 1), "gone": f32(1)}, {"format": "pt"})
    b = safetensors_writer("b.safetensors", BASE | {"blocks.0.x": f32(2, 1.5), "proj_out.weight": f32(1)})
    code, lines, _ = said(a, b, "--json", "--first", 1)
    found = json.loads("\n".join(lines))
    assert code == 1
    assert (found["a"], found["b"], found["equal"], found["metadata_equal"]) == (str(a), str(b), False, False)
    assert {key: found[key] for key in ("tensors", "differing", "max_abs_diff", "nan_on_one_side")} == {
        "tensors": 4,
        "differing": 2,
        "max_abs_diff": 0.5,
        "nan_on_one_side": 1,
    }
    (file,) = found["files"]
    first, second = file["differences"]
    assert (first["name"], first["block"], first["distance"]["elements_differing"]) == ("blocks.0.x", "blocks.0", 2)
    assert second["a"] == {"dtype": "F8_E4M3", "shape": [2]}
    assert second["distance"] is None
    assert (file["only_in_a"], file["only_in_b"]) == (["gone"], [])
    assert file["metadata"] == {"changed": {}, "only_in_a": ["format"], "only_in_b": []}
    equal = json.loads("\n".join(said(a, a, "--json")[1]))
    assert (equal["equal"], equal["differing"], equal["max_abs_diff"]) == (True, 0, 0.0)


def test_folders_are_paired_by_relative_names(safetensors_writer, said, tmp_path: Path) -> None:
    for side in "ab":
        safetensors_writer(f"{side}/adapter.safetensors", BASE)
        safetensors_writer(f"{side}/steps/10/adapter.safetensors", {"w": f32(1 if side == "a" else 3)})
        safetensors_writer(f"{side}/.hidden/x.safetensors", {"w": f32(1 if side == "a" else 3)})
    (tmp_path / "a" / ".adapter.partial.safetensors").write_bytes(b"half")
    (tmp_path / "a" / "metrics.jsonl").write_text("{}")
    code, lines, _ = said(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert lines == [
        "1 / 4 tensors differ, max abs diff 2.0",
        "steps/10/adapter.safetensors: 1 / 1 tensors differ, max abs diff 2.0",
        "  other  w: 1 of 1 elements, max abs diff 2.0",
    ]
    assert said(tmp_path / "a", tmp_path / "a")[:2] == (0, ["0 / 4 tensors differ, max abs diff 0.0"])
    safetensors_writer("b/steps/10/adapter.safetensors", {"w": f32(1)})
    safetensors_writer("b/optimizer.safetensors", {"w": f32(1)})
    assert said(tmp_path / "a", tmp_path / "b")[:2] == (
        1,
        ["0 / 4 tensors differ, 1 file only in B, max abs diff 0.0", "  file only in B: optimizer.safetensors"],
    )


def test_a_lora_in_two_spellings_is_sent_to_the_command_that_reads_both(safetensors_writer, said) -> None:
    a = safetensors_writer("a.safetensors", {"transformer.x.lora_A.weight": f32(1)})
    b = safetensors_writer("b.safetensors", {"lora_unet_x.lora_down.weight": f32(1)})
    code, lines, _ = said(a, b)
    assert (code, lines[0]) == (1, "0 / 0 tensors differ, 1 tensor only in A, 1 tensor only in B, max abs diff 0.0")
    assert lines[-1].endswith("analysis endpoints compares what they do")
    assert len(lines) == 4
    assert len(said(a, safetensors_writer("c.safetensors", {"w": f32(1)}))[1]) == 3  # no LoRA


def test_names_are_printed_so_that_a_terminal_does_not_obey_them(safetensors_writer, said) -> None:
    a, b = (safetensors_writer(f"{x}.safetensors", {"\x1b[31m\nσ\u202e": f32(x == "a")}) for x in "ab")
    assert said(a, b)[1][1].startswith(r"  other  \x1b[31m\nσ\u202e: ")
    assert shown("bad\udcff") == r"bad\udcff"


def test_trouble_is_two_and_one_line(safetensors_writer, said, tmp_path: Path) -> None:
    good = safetensors_writer("good.safetensors", BASE)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(good.read_bytes()[:-1])
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no tensors here, though long enough for a header")
    safetensors_writer("folder/good.safetensors", BASE)
    (tmp_path / "folder" / "cut.safetensors").write_bytes(cut.read_bytes())
    for a, b, message in [
        (good, cut, "cut.safetensors is no whole safetensors file: "),
        (cut, good, "cut.safetensors is no whole safetensors file: "),
        (good, tmp_path / "text", "text is no whole safetensors file: "),
        (good, tmp_path / "missing", "missing cannot be read (No such file or directory)"),
        (good, tmp_path / "folder", "folder a folder: give two files or two folders"),
        (tmp_path / "folder", good, "folder a folder: give two files or two folders"),
        (tmp_path / "folder", tmp_path / "empty", "empty holds no .safetensors file: "),
        (tmp_path / "folder", tmp_path / "folder", "cut.safetensors is no whole safetensors file: "),
        (tmp_path / "folder", tmp_path / "missing", "missing cannot be read (No such file or directory)"),
        (good, good, "--first -1: "),
    ]:
        more = ["--first", "-1"] if message.startswith("--first") else []
        code, lines, err = said(a, b, *more)
        assert (code, lines, err.count("\n")) == (2, [], 1)
        assert message in err


@pytest.mark.parametrize("arguments", [[], ["one.safetensors"], ["a", "b", "c"], ["a", "b", "--nope"]])
def test_bad_usage_is_two(said, arguments: list[str]) -> None:
    code, lines, err = said(*arguments)
    assert (code, lines, err.count("\n")) == (2, [], 1)


def test_the_console_script_answers_like_cmp(safetensors_writer, tmp_path: Path) -> None:
    a, b = safetensors_writer("a.safetensors", {"w": f32(1)}), safetensors_writer("b.safetensors", {"w": f32(2)})
    for other, code, out, err in [
        (a, 0, "0 / 1 tensors differ, max abs diff 0.0\n", 0),
        (b, 1, "1 / 1 tensors differ, max abs diff 1.0\n  other  w: 1 of 1 elements, max abs diff 1.0\n", 0),
        (tmp_path / "missing", 2, "", 1),
    ]:
        done = subprocess.run([SCRIPT, "diff", a, other], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, out, err)


LIMITED = """
import resource, sys
from pathlib import Path
from analysis import diff
import tqdm
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 64 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
code = diff.print_difference(Path(sys.argv[1]), Path(sys.argv[2]), metadata=False, first=1, json_object=False)
heavy = {"torch", "safetensors", "xarray", "scipy"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else code)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux to know the memory in use")
def test_files_far_larger_than_the_memory_allowed(tmp_path: Path) -> None:
    """Of 320 MB each, sparse, in 64 MiB beyond what the program itself takes; they differ at the far end."""
    elements = 80_000_000
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2, elements], "data_offsets": [0, 4 * elements]}}).encode()
    for name, last in (("a", b"\x80\x3f"), ("b", b"\x00\x40")):
        with (tmp_path / name).open("wb") as file:
            file.write(len(header).to_bytes(8, "little") + header)
            file.seek(4 * elements - 2, os.SEEK_CUR)
            file.write(last)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "a"), str(tmp_path / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "1 / 1 tensors differ, max abs diff 1.0",
        "  other  w: 1 of 160000000 elements, max abs diff 1.0",
    ]


def test_a_bar_shows_on_a_terminal_only_and_only_when_it_takes_long(safetensors_writer, monkeypatch, capsys) -> None:
    path = safetensors_writer("a.safetensors", BASE)
    for patience, terminal, expected in [(0.0, True, True), (60.0, True, False), (0.0, False, False)]:
        monkeypatch.setattr(file_pairs, "PATIENCE", patience)
        reader, writer = pty.openpty() if terminal else os.pipe()
        if terminal:
            termios.tcsetwinsize(writer, (24, 80))
        with os.fdopen(writer, "w") as standard_error, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", standard_error)
            assert diff(path, path) == 0
            standard_error.flush()
            shown_there = b""
            # A terminal hands on what is written to it in pieces, and on a busy machine late.
            while select.select([reader], [], [], 5.0 if expected and b"100%" not in shown_there else 0.1)[0]:
                shown_there += os.read(reader, 10_000)
        os.close(reader)
        assert (b"100%" in shown_there) is expected
        assert bool(shown_there) is expected
    assert capsys.readouterr().out.count(EQUAL) == 3


@settings(max_examples=60)
@given(st.data())
def test_damage_is_never_an_internal_error_and_equal_only_if_it_is(tmp_path_factory, data) -> None:
    """Of the bytes of a tensor: 1. Of the header or the length: 2, or 1, or 0 if only spaces or metadata changed."""
    folder = tmp_path_factory.getbasetemp()
    header = json.dumps(
        {
            "w": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
            "v": {"dtype": "BF16", "shape": [4], "data_offsets": [8, 16]},
        }
    ).encode()
    content = len(header).to_bytes(8, "little") + header + bytes(range(16))
    a, b = folder / "whole.safetensors", folder / "spoilt.safetensors"
    a.write_bytes(content)
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        b.write_bytes(content[:at])
        assert diff(a, b) == diff(b, a) == 2
        return
    value = data.draw(st.integers(0, 255).filter(lambda value: value != content[at]))
    b.write_bytes(content[:at] + bytes([value]) + content[at + 1 :])
    code = diff(a, b)
    assert code == diff(b, a)
    assert code == 1 if at >= len(content) - 16 else code in (0, 1, 2)
    if code == 0:
        assert chr(content[at]) in " "
