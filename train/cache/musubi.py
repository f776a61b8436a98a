"""Caches of musubi-tuner: ``{stem}_{W}x{H}_{arch}.safetensors`` beside ``{stem}_{arch}_te.safetensors``.

The latent is ``latents_{F}x{H}x{W}_{dtype}``, [C, F, H, W] or, of a single frame, [C, H, W]; the size in a file's name
is that of the picture. Wan's and Qwen-Image's are normalised, Z-Image's are not. Its tool has no lower tiers.
"""

import re
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from analysis.errors import UsageError
from train.cache.arrays import arrays
from train.cache.cached import CachedLatents, Stored
from train.cache.foreign import FoundImage, Tool, arranged, check_shape, one_frame, padded
from train.cache.index import file_hash
from train.families import Family

TOOL = Tool("musubi-tuner", {"wan": ("wan", False), "qi": ("qwenimage", False), "zi": ("z_image", True)})
FILE = re.compile(r"(?P<stem>.+)_\d+x\d+_(?P<arch>[a-z0-9]+)\.safetensors")
CLIP = re.compile(r"_\d{5,}-\d{3,}$")  # its first frame and their number
TENSOR = re.compile(r"latents_(?P<frames>\d+)x(?P<height>\d+)x(?P<width>\d+)_\w+")
#: Of each architecture: the text's name in the file, and the family's.
TEXTS = {"wan": ("varlen_t5_", "encoder_hidden_states"), "qi": ("varlen_vl_embed_", "encoder_hidden_states")} | {
    "zi": ("varlen_llm_embed_", "cap_feats")
}
WAN_TOKENS = 512


def opened(folder: Path, family: Family, model: Path) -> CachedLatents | None:
    """The cache in ``folder``; None where no file has such a name."""
    files: dict[str, Path] = {}
    archs: set[str] = set()
    for path in sorted(folder.iterdir()):
        if name := FILE.fullmatch(path.name):
            archs.add(name["arch"])
            if name["stem"] in files:
                raise UsageError(f"{path} and {files[name['stem']].name} are both latents of {name['stem']}; keep one")
            files[name["stem"]] = path
    if not files:
        return None
    if len(archs) > 1:
        raise UsageError(f"{folder}: latents for {' and '.join(sorted(archs))}; keep those of one in a folder")
    arch = archs.pop()
    normalise = TOOL.normalises(folder, arch, family, model)
    images = {}
    for stem, path in files.items():
        found = latent(path, family, normalise)
        images[stem] = FoundImage((found,), text_of(folder, stem, arch, clip=len(found.shape) == 4))
    return arranged(images, family, model, TOOL)


def latent(path: Path, family: Family, normalise: Callable[[Tensor], Tensor]) -> Stored:
    """The latent of a file. UsageError where there are several, or one of a picture as a condition."""
    there = arrays(path)
    conditioned = [name for name in there if name.startswith(("latents_control", "latents_image", "latents_clean"))]
    if conditioned:
        raise UsageError(f"{path}: {conditioned[0]} is a picture as a condition, which is not fed here")
    found = [(name, sides) for name in there if (sides := TENSOR.fullmatch(name))]
    if len(found) != 1:
        raise UsageError(f"{path}: {len(found)} tensors latents_FxHxW among {', '.join(there) or 'none'}; one is taken")
    ((name, sides),) = found
    named = (int(sides["frames"]), int(sides["height"]), int(sides["width"]))
    array = there[name].floating()
    shape = check_shape(f"{path}: {name}", array.shape, named, family)
    return Stored(shape, file_hash(path), lambda: normalise(one_frame(array.read().float())))


def text_of(folder: Path, stem: str, arch: str, *, clip: bool) -> dict[str, Stored]:
    """The conditioning of the image ``stem``; of a clip, whose latents are named by its frames as well, the video's."""
    stems = (stem, CLIP.sub("", stem)) if clip else (stem,)
    path = next((p for of in stems if (p := folder / f"{of}_{arch}_te.safetensors").is_file()), None)
    if path is None:
        raise UsageError(f"{folder}: no {stem}_{arch}_te.safetensors for the latents of {stem}; cache its text too")
    begins, ours = TEXTS[arch]
    there = arrays(path)
    name = next((name for name in there if name.startswith(begins)), None)
    if name is None or len(there[name].shape) != 2:
        raise UsageError(f"{path}: no {begins}* [tokens, width] among {', '.join(there) or 'none'}; cache it again")
    array = there[name].floating()
    tokens, width = array.shape
    if arch != "wan":
        return {ours: Stored((tokens, width), file_hash(path), array.read)}
    if tokens > WAN_TOKENS:
        raise UsageError(f"{path}: {name} has {tokens} tokens, {WAN_TOKENS} are taken; cache it again")
    return {ours: Stored((WAN_TOKENS, width), file_hash(path), lambda: padded(array.read(), WAN_TOKENS))}
