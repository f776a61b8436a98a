import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from analysis.errors import UsageError
from train.pictures import digest, folders_with_pictures, read_folder, read_picture, resized, shape_at


@pytest.fixture
def photograph():
    rows, columns = np.mgrid[:90, :120]
    return np.stack([rows * 2, columns * 2, rows + columns], -1).astype(np.uint8)


def test_pictures_come_in_the_order_of_their_names(tmp_path, photograph):
    for name in ("b.png", "a.jpg", "c.webp"):
        Image.fromarray(photograph).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("not a picture")
    assert list(read_folder(tmp_path)) == ["a", "b", "c"]


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1"])
def test_every_mode_becomes_rgb(tmp_path, photograph, mode):
    path = tmp_path / ("x.tif" if mode == "CMYK" else "x.png")
    Image.fromarray(photograph).convert(mode).save(path)
    picture = read_picture(path)
    assert picture.pixels.shape == (90, 120, 3)
    assert picture.pixels.dtype == np.uint8


def test_what_is_transparent_is_white(tmp_path):
    seen = Image.new("RGBA", (4, 4), (200, 0, 0, 255))
    seen.putpixel((0, 0), (0, 90, 0, 0))
    seen.putpixel((1, 0), (0, 0, 0, 51))
    seen.save(tmp_path / "x.png")
    pixels = read_picture(tmp_path / "x.png").pixels
    assert pixels[0, :3].tolist() == [[255, 255, 255], [204, 204, 204], [200, 0, 0]]
    palette = seen.convert("RGB").quantize(2)
    palette.save(tmp_path / "p.png", transparency=palette.getpixel((3, 3)))
    assert read_picture(tmp_path / "p.png").pixels[3, 3].tolist() == [255, 255, 255]
    grey = Image.new("LA", (4, 4), (10, 0))
    grey.save(tmp_path / "g.png")
    assert (read_picture(tmp_path / "g.png").pixels == 255).all()


def test_exif_orientation_is_applied(tmp_path, photograph):
    turned = Image.fromarray(photograph)
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "x.png", exif=exif)
    assert read_picture(tmp_path / "x.png").pixels.shape == (120, 90, 3)


@pytest.mark.parametrize("content", [b"", b"GIF89a nonsense", b"\x89PNG\r\n\x1a\n broken"])
def test_an_unreadable_picture_is_named(tmp_path, content):
    (tmp_path / "bad.png").write_bytes(content)
    with pytest.raises(UsageError, match=r"bad\.png: not a readable picture"):
        read_folder(tmp_path)


def test_a_truncated_picture_is_named(tmp_path, photograph):
    Image.fromarray(photograph).save(tmp_path / "cut.png")
    whole = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"cut\.png"):
        read_folder(tmp_path)


def test_bad_folders(tmp_path, photograph):
    with pytest.raises(UsageError, match="no such folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(UsageError, match="holds no picture"):
        read_folder(tmp_path)
    for name in ("x.png", "x.jpg"):
        Image.fromarray(photograph).save(tmp_path / name)
    with pytest.raises(UsageError, match="also named x"):
        read_folder(tmp_path)


def test_subfolders_are_not_read_and_told(tmp_path, photograph):
    deep = tmp_path / "10_cat" / "more"
    deep.mkdir(parents=True)
    for name in ("notes", ".thumbnails"):
        (tmp_path / name).mkdir()
    for folder in (deep, tmp_path / ".thumbnails"):
        Image.fromarray(photograph).save(folder / "x.png")
    assert folders_with_pictures(tmp_path) == ["10_cat"]
    shutil.rmtree(tmp_path / ".thumbnails")
    with pytest.raises(UsageError, match="holds no picture, and subfolders, such as 10_cat, are not read; allowed"):
        read_folder(tmp_path)


def test_what_is_seen_is_what_is_hashed(tmp_path, photograph, monkeypatch):
    path, read_bytes = tmp_path / "x.png", Path.read_bytes
    Image.fromarray(photograph).save(path)
    before = read_picture(path)

    def read_and_replaced(self):
        content = read_bytes(self)
        Image.fromarray(photograph + 1).save(path)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_replaced)
    found = read_picture(path)
    assert found.sha256 == before.sha256
    assert np.array_equal(found.pixels, before.pixels)


def test_the_grid_keeps_aspect_area_and_patch():
    assert shape_at((500, 500), 64, 4) == (64, 64)
    rows, columns = shape_at((400, 800), 64, 4)
    assert rows % 4 == columns % 4 == 0
    assert rows * columns == pytest.approx(64 * 64, rel=0.1)
    assert columns / rows == pytest.approx(2, rel=0.1)


def test_resizing_of_a_square_is_plain_lanczos(photograph):
    square = photograph[:80, :80]
    by_pillow = np.asarray(Image.fromarray(square).resize((56, 56), Image.Resampling.LANCZOS))
    assert np.array_equal(resized(square, (56, 56)), by_pillow)


def test_resizing_cuts_the_centre_and_does_not_squeeze(photograph):
    # Columns rise by 2 a pixel: over the centred 90 columns of 120 the mean is 119 and the span 180.
    small = resized(photograph, (30, 30))[..., 1].astype(float)
    assert small.mean() == pytest.approx(119, abs=1)
    assert small[15, -1] - small[15, 0] == pytest.approx(180 * 29 / 30, abs=3)


def test_the_digest_sees_names_contents_and_settings(tmp_path, photograph):
    Image.fromarray(photograph).save(tmp_path / "x.png")
    one = read_folder(tmp_path)
    renamed = {"y": one["x"]}
    Image.fromarray(photograph + 1).save(tmp_path / "x.png")
    assert len({digest(one, "a"), digest(one, "b"), digest(renamed, "a"), digest(read_folder(tmp_path), "a")}) == 4


def test_sixteen_bits_are_scaled_and_numbers_without_a_white_are_refused(tmp_path):
    ramp = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    Image.fromarray(ramp).save(tmp_path / "deep.png")
    found = read_picture(tmp_path / "deep.png").pixels
    np.testing.assert_allclose(found[..., 0], ramp / 257, atol=0.51)
    for dtype in (np.float32, np.int32):
        Image.fromarray(ramp.astype(dtype)).save(tmp_path / "wide.tif")
        with pytest.raises(UsageError, match=r"wide.tif: not a readable picture \(its pixels are 32-bit"):
            read_picture(tmp_path / "wide.tif")


def test_what_is_no_file_or_no_picture_to_train_on_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(UsageError, match=r"pipe.png: not a file"):
        read_picture(tmp_path / "pipe.png")
    Image.new("RGB", (10, 170)).save(tmp_path / "tall.png")
    with pytest.raises(UsageError, match="10 x 170 pixels; sides of up to 16:1"):
        read_picture(tmp_path / "tall.png")
    with pytest.raises(UsageError, match="is not a folder"):
        read_folder(tmp_path / "tall.png")
