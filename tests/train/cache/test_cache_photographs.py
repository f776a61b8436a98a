"""Sizes, captions and refusals of a folder of photographs."""

import pytest
from PIL import Image

from analysis.errors import UsageError
from train.cache.photographs import caption_of, counted, look_at


def names(found):
    return [photograph.name for photograph in found]


def test_sizes_are_upright_and_captions_stand_beside(photographs):
    found, bad = look_at(photographs, 64, 4, skip_bad=False)
    assert names(found) == ["a", "b", "c", "d"]
    assert [photograph.size for photograph in found] == [(90, 90), (70, 140), (150, 80), (120, 80)]
    assert [photograph.caption[:6] for photograph in found] == ["a red ", "", "two bo", ""]
    assert bad == {}


def test_a_stem_is_the_whole_of_it(tmp_path):
    for name in ("a", "a_1", "a.b"):
        Image.new("RGB", (80, 80)).save(tmp_path / f"{name}.png")
        (tmp_path / f"{name}.txt").write_text(f" {name}\n")
    found, _ = look_at(tmp_path, 64, 4, skip_bad=False)
    assert {photograph.name: photograph.caption for photograph in found} == {n: n for n in ("a", "a.b", "a_1")}


def test_too_small_ones_are_named_with_what_would_fit(photographs):
    with pytest.raises(
        UsageError, match=r"too small for tier 128.*: a\.png 90 x 90 pixels, fits tier 88; b\.png 140 x 70"
    ):
        look_at(photographs, 128, 4, skip_bad=False)
    Image.new("RGB", (300, 300)).save(photographs / "e.png")
    found, bad = look_at(photographs, 128, 4, skip_bad=True)
    assert names(found) == ["e"]
    assert set(bad) == {"a.png", "b.png", "c.png", "d.png"}
    assert bad["a.png"] == "90 x 90 pixels, fits tier 88"


def test_damage_stops_or_is_left_out(photographs):
    (photographs / "b.png").write_bytes((photographs / "b.png").read_bytes()[:200])
    with pytest.raises(UsageError, match=r"b\.png: not a readable picture.*--skip-bad"):
        look_at(photographs, 64, 4, skip_bad=False)
    found, bad = look_at(photographs, 64, 4, skip_bad=True)
    assert names(found) == ["a", "c", "d"]
    assert "not a readable picture" in bad["b.png"]


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(UsageError, match="holds no picture"):
        look_at(tmp_path, 64, 4, skip_bad=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "tiny.png")
    with pytest.raises(UsageError, match="none of its 1 pictures"):
        look_at(tmp_path, 64, 4, skip_bad=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "tiny.jpg")
    with pytest.raises(UsageError, match="also named tiny"):
        look_at(tmp_path, 64, 4, skip_bad=True)


def test_a_caption_that_is_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(UsageError, match=r"a\.txt: not readable as UTF-8"):
        caption_of(tmp_path / "a.png")
    (tmp_path / "b.txt").write_bytes("\ufeffa cat\n".encode())
    assert caption_of(tmp_path / "b.png") == "a cat"


@pytest.mark.parametrize("text", [b"\xff\xfe\xff", b"a " * 10_001 + b"b", b"a" * 4_000_000, b" " * 100_000])
def test_a_photograph_without_a_proper_caption_stops_or_is_left_out(text, photographs):
    (photographs / "b.txt").write_bytes(text)
    with pytest.raises(UsageError, match=r"b\.txt: .*; mend or remove it, or leave such out with --skip-bad$"):
        look_at(photographs, 64, 4, skip_bad=False)
    found, bad = look_at(photographs, 64, 4, skip_bad=True)
    assert names(found) == ["a", "c", "d"]
    assert list(bad) == ["b.png"]
    assert "b.txt: " in bad["b.png"]


def test_a_caption_may_be_long(tmp_path):
    (tmp_path / "a.txt").write_text("字" * 20_000 + "\n", encoding="utf-8")
    assert len(caption_of(tmp_path / "a.png")) == 20_000
    (tmp_path / "a.txt").write_text("a" * 20_001)
    with pytest.raises(UsageError, match=r"a\.txt: is no caption, which has 20000 characters at most"):
        caption_of(tmp_path / "a.png")


def test_grids_are_counted():
    assert counted([(64, 48), (64, 64), (64, 48)]) == "2 of 48 x 64, 1 of 64 x 64"
