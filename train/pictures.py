"""Photographs from a folder, as RGB pixels, and resizing them to a tier.

Resizing is Lanczos in steps of uint8, as people's caching tools do it. What is transparent is seen on white. Colour
profiles are not applied, and of an animation the first picture is taken.
"""

import hashlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from analysis.errors import UsageError

LONGEST = 16  # sides of a picture, long to short
ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff"})


@dataclass(frozen=True)
class Picture:
    """pixels: uint8 [H, W, 3]; sha256: of the file's bytes."""

    pixels: np.ndarray
    sha256: str


def read_picture(path: Path) -> Picture:
    """One picture, upright by its EXIF orientation, in RGB."""
    if not path.is_file():
        raise UsageError(f"{path}: not a file; mend or remove it")
    try:
        content = path.read_bytes()
        with Image.open(BytesIO(content)) as picture:  # what is hashed, even where the file changes meanwhile
            upright = on_white(in_eight_bits(ImageOps.exif_transpose(picture)))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        raise UsageError(f"{path}: not a readable picture ({error}); mend or remove it") from None
    if max(upright.size) > LONGEST * min(upright.size):
        raise UsageError(f"{path}: {upright.width} x {upright.height} pixels; sides of up to {LONGEST}:1 are taken")
    return Picture(np.asarray(upright), hashlib.sha256(content).hexdigest())


def in_eight_bits(picture: Image.Image) -> Image.Image:
    """16-bit grey scaled to 8 bits, which Pillow would clip. ValueError for numbers whose white is not known."""
    if picture.mode.startswith("I;16"):
        return Image.fromarray(np.round(np.asarray(picture).astype(np.float64) / 257).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError(f"its pixels are 32-bit numbers, mode {picture.mode}; save it with 8 or 16 bits")
    return picture


def on_white(picture: Image.Image) -> Image.Image:
    """RGB, with what is transparent on white; what colours hide beneath it is arbitrary."""
    if not picture.has_transparency_data:
        return picture.convert("RGB")
    over = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")


def read_folder(folder: Path) -> dict[str, Picture]:
    """Every picture of ``folder`` by its stem, in the order of their names."""
    return {name: read_picture(path) for name, path in paths_in(folder).items()}


def paths_in(folder: Path) -> dict[str, Path]:
    """The files of pictures in ``folder``, not below it, by stem, in the order of their names."""
    if not folder.is_dir():
        kind = "is not a folder" if folder.exists() else "no such folder"
        raise UsageError(f"{folder}: {kind}; give one that holds pictures")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    if not paths:
        below = min((path.name for path in folder.iterdir() if path.is_dir()), default=None)
        aside = "" if below is None else f", and subfolders, such as {below}, are not read"
        raise UsageError(f"{folder}: holds no picture{aside}; allowed: {', '.join(sorted(ENDINGS))}")
    by_stem: dict[str, Path] = {}
    for path in paths:
        if path.stem in by_stem:
            raise UsageError(f"{path}: another picture here is also named {path.stem}; rename one of them")
        by_stem[path.stem] = path
    return by_stem


def folders_with_pictures(folder: Path) -> list[str]:
    """The subfolders of ``folder`` that hold pictures at any depth, which are not read; hidden ones left aside."""
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [sub.name for sub in below if any(path.suffix.lower() in ENDINGS for path in sub.rglob("*"))]


def shape_at(pixels: tuple[int, ...], tier: int, unit: int) -> tuple[int, int]:
    """Height and width of a picture at ``tier``: its aspect, about tier x tier pixels, multiples of ``unit``."""
    height, width = pixels[:2]
    if height == width:
        return tier, tier
    aspect = (height / width) ** 0.5
    sides = (max(unit, round(tier * ratio / unit) * unit) for ratio in (aspect, 1 / aspect))
    rows, columns = sides
    return rows, columns


def resized(pixels: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """uint8 [H, W, 3] -> uint8 [*shape, 3]: the largest centred cut of that aspect, then Lanczos."""
    height, width = pixels.shape[:2]
    rows, columns = shape
    scale = min(height / rows, width / columns)
    cut_height, cut_width = rows * scale, columns * scale
    top, left = (height - cut_height) / 2, (width - cut_width) / 2
    box = (left, top, left + cut_width, top + cut_height)
    picture = Image.fromarray(pixels)
    return np.asarray(picture.resize((columns, rows), Image.Resampling.LANCZOS, box=box))


def digest(pictures: dict[str, Picture], settings: str) -> str:
    """SHA-256 over names, file contents and ``settings``."""
    lines = [settings, *(f"{name} {picture.sha256}" for name, picture in pictures.items())]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
