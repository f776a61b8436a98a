"""Caches of kohya's sd-scripts: ``{stem}_{W}x{H}_{arch}.npz`` beside ``{stem}_{arch}_te.npz``.

Arrays ``latents_{h}x{w}`` and, of lower tiers, ``demoted_{h}x{w}`` are float32, [C, h, w] or [C, 1, h, w], sides in
latent pixels; the size in the file's name is that of the picture. Flux's and Anima's are normalised, SD3's are not.
"""

import re
from collections.abc import Callable, Mapping
from math import prod, sqrt
from pathlib import Path

from torch import Tensor

from analysis.errors import UsageError
from train.cache.arrays import arrays
from train.cache.cached import CachedLatents, Stored
from train.cache.foreign import FoundImage, Tool, arranged, check_shape, one_frame
from train.cache.index import file_hash
from train.cache.kohya_texts import text_of
from train.families import Family

TOOL = Tool("sd-scripts", {"flux": ("flux", False), "sd3": ("sd3", True), "anima": ("cosmos", False)})
FILE = re.compile(r"(?P<stem>.+)_\d{4,}x\d{4,}_(?P<arch>[a-z0-9]+)\.npz")
NATIVE = "latents"
ARRAY = re.compile(r"(latents|demoted)_(?P<height>\d+)x(?P<width>\d+)")


def opened(folder: Path, family: Family, model: Path) -> CachedLatents | None:
    """The cache in ``folder``; None where no file has such a name."""
    files: dict[str, Path] = {}
    archs: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if name := FILE.fullmatch(path.name):
            archs[name["arch"]] = path
            if name["stem"] in files:
                raise UsageError(f"{path} and {files[name['stem']].name} are both latents of {name['stem']}; keep one")
            files[name["stem"]] = path
    if not files:
        return None
    if len(archs) > 1:
        raise UsageError(f"{folder}: latents for {' and '.join(archs)}; keep those of one architecture in a folder")
    arch = next(iter(archs))
    normalise = TOOL.normalises(folder, arch, family, model)
    images = {
        stem: FoundImage(latents(path, family, normalise), text_of(folder, stem, arch, family, model))
        for stem, path in files.items()
    }
    return arranged(images, family, model, TOOL)


def latents(path: Path, family: Family, normalise: Callable[[Tensor], Tensor]) -> tuple[Stored, ...]:
    """Every latent of a file, the native one among them."""
    sha256, there = file_hash(path), arrays(path)
    found: dict[str, Stored] = {}
    for name, array in there.items():
        if sides := ARRAY.fullmatch(name):
            named = (1, int(sides["height"]), int(sides["width"]))
            shape = check_shape(f"{path}: {name}", array.floating().shape, named, family)
            found[name] = Stored(shape, f"{sha256} {name}", lambda array=array: normalise(one_frame(array.read())))
    if not any(name.startswith(NATIVE) for name in found):
        raise UsageError(f"{path}: no array latents_HxW among {', '.join(there) or 'none'}; cache it again")
    check_grids(path, {name: (stored.shape[-2], stored.shape[-1]) for name, stored in found.items()}, family.patch)
    return tuple(found.values())


def check_grids(path: Path, grids: Mapping[str, tuple[int, int]], patch: int) -> None:
    """UsageError unless the others are smaller than the native grid, and of its aspect up to a patch along a side."""
    native = max((name for name in grids if name.startswith(NATIVE)), key=lambda name: prod(grids[name]))
    height, width = grids[native]
    for name, (h, w) in grids.items():
        scale = sqrt(h * w / (height * width))
        if name != native and scale >= 1:
            raise UsageError(f"{path}: {name} is no smaller than {native}, the native grid; cache it again")
        if abs(h - scale * height) > patch or abs(w - scale * width) > patch:
            raise UsageError(f"{path}: {name} is of another aspect than {native}, the native grid; cache it again")
