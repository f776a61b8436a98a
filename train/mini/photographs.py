"""The photographs behind the mini model, and crops of them.

``photographs.csv`` names each one with its package, author and licence. Nothing is downloaded:
scikit-image and scikit-learn carry theirs inside their wheels, the others are in three Debian
packages that can be unpacked anywhere (MODEL_CARD.md says how). The photographs marked ``corpus``
are never trained on: they are the held-out pictures, and the shipped corpus is cut from them.
"""

import csv
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from analysis.errors import UsageError

SHORT_SIDE = 800  # pixels: a larger photograph is shrunk to this first
CROP_SIDE = 128  # pixels: the size every crop is kept at; tiers are resized from it
SMALLEST, LARGEST = 128, 640  # pixels: side of the square that is cut out
IN_WHEELS = {"scikit-image": "skimage", "scikit-learn": "sklearn"}


@dataclass(frozen=True)
class Photograph:
    """One row of ``photographs.csv``; ``path`` is relative to the unpacked package."""

    name: str
    split: str
    package: str
    path: str
    author: str
    licence: str

    def open(self, unpacked: Path) -> Image.Image:
        """RGB picture, its short side at most ``SHORT_SIDE``. ``unpacked``: where the Debian packages lie."""
        root = unpacked
        if self.package in IN_WHEELS:
            spec = importlib.util.find_spec(IN_WHEELS[self.package])
            if spec is None or spec.origin is None:
                raise UsageError(f"{self.name}: install {self.package}, whose wheel carries {self.path}")
            root = Path(spec.origin).parent.parent
        if not (root / self.path).is_file():
            raise UsageError(f"{self.name}: {self.path} of the Debian package {self.package} is not below {root}")
        picture = Image.open(root / self.path).convert("RGB")
        shrink = SHORT_SIDE / min(picture.size)
        if shrink < 1:
            width, height = (round(side * shrink) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        return picture


def photographs(split: str) -> list[Photograph]:
    """The photographs of ``split``: ``train`` or ``corpus``, in the order of the table."""
    with Path(__file__).with_name("photographs.csv").open(newline="", encoding="utf-8") as table:
        return [photograph for row in csv.DictReader(table) if (photograph := Photograph(**row)).split == split]


def crop(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A random square of ``picture``, at ``CROP_SIDE``; its side is log-uniform, half are mirrored."""
    width, height = picture.size
    side = round(float(np.exp(rng.uniform(np.log(SMALLEST), np.log(min(width, height, LARGEST))))))
    left, top = (int(rng.integers(0, free + 1)) for free in (width - side, height - side))
    cut = picture.crop((left, top, left + side, top + side))
    if rng.random() < 0.5:
        cut = cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return cut.resize((CROP_SIDE, CROP_SIDE), Image.Resampling.LANCZOS)


def crops(split: str, count: int, tiers: tuple[int, ...], *, seed: int, unpacked: Path) -> dict[int, np.ndarray]:
    """``count`` crops, photograph after photograph in turn, at each tier: uint8 [count, tier, tier, 3]."""
    rng = np.random.default_rng(seed)
    pictures = [photograph.open(unpacked) for photograph in photographs(split)]
    at_tier = {tier: np.empty((count, tier, tier, 3), np.uint8) for tier in tiers}
    for i in range(count):
        cut = crop(pictures[i % len(pictures)], rng)
        for tier, out in at_tier.items():
            out[i] = np.asarray(cut.resize((tier, tier), Image.Resampling.LANCZOS))
    return at_tier
