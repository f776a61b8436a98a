"""Caches of kohya's sd-scripts: ``{stem}_{W}x{H}_{arch}.npz`` beside ``{stem}_{arch}_te.npz``.

Arrays ``latents_{h}x{w}`` and, of lower tiers, ``demoted_{h}x{w}`` are float32, [C, h, w] or [C, 1, h, w], sides in
latent pixels; the size in the file's name is that of the picture. Flux's and Anima's are normalised, SD3's are not.
"""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from analysis.errors import UsageError
from train.cache.cached import CachedLatents, Stored
from train.cache.foreign import FoundImage, Tool, arranged, check_shape, one_frame
from train.cache.index import file_hash
from train.cache.kohya_texts import text_of
from train.families import Family

TOOL = Tool("sd-scripts", {"flux": ("flux", False), "sd3": ("sd3", True), "anima": ("cosmos", False)})
FILE = re.compile(r"(?P<stem>.+)_\d{4,}x\d{4,}_(?P<arch>[a-z0-9]+)\.npz")
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
    """Every latent of a file."""
    sha256, found = file_hash(path), []
    for name, shape in shapes(path).items():
        if sides := ARRAY.fullmatch(name):
            named = (1, int(sides["height"]), int(sides["width"]))
            taken = check_shape(f"{path}: {name}", shape, named, family)
            found.append(Stored(taken, f"{sha256} {name}", lambda name=name: normalise(one_frame(array(path, name)))))
    if not found:
        raise UsageError(f"{path}: no array latents_HxW among {', '.join(shapes(path)) or 'none'}; cache it again")
    return tuple(found)


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The arrays of an npz file by name, from their headers."""
    found = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                with archive.open(name) as file:
                    version = np.lib.format.read_magic(file)
                    read = (
                        np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
                    )
                    found[name.removesuffix(".npy")] = read(file)[0]
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is no whole npz file ({error}); remove it and make it again") from None
    return found


def array(path: Path, name: str) -> Tensor:
    """One array of an npz file, as numbers only."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return torch.from_numpy(file[name])
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: {name} cannot be read ({error}); remove it and make it again") from None
