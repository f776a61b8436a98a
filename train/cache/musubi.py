"""Caches of musubi-tuner: ``{stem}_{W}x{H}_{arch}.safetensors`` beside ``{stem}_{arch}_te.safetensors``.

The latent is ``latents_{F}x{H}x{W}_{dtype}``, [C, F, H, W] or, of a single frame, [C, H, W]; the size in a file's name
is that of the picture. Wan's and Qwen-Image's are normalised, Z-Image's are not. Its tool has no lower tiers.
"""

import re
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from analysis.errors import UsageError
from analysis.safetensors_file import opened as opened_safetensors
from train.cache.cached import CachedLatents, Stored
from train.cache.foreign import FoundImage, Tool, arranged, check_shape, one_frame, padded
from train.cache.index import file_hash
from train.cache.kohya_texts import tensor
from train.families import Family

TOOL = Tool("musubi-tuner", {"wan": ("wan", False), "qi": ("qwenimage", False), "zi": ("z_image", True)})
FILE = re.compile(r"(?P<stem>.+)_\d+x\d+_(?P<arch>[a-z0-9]+)\.safetensors")
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
    images = {
        stem: FoundImage((latent(path, family, normalise),), text_of(folder, stem, arch))
        for stem, path in files.items()
    }
    return arranged(images, family, model, TOOL)


def latent(path: Path, family: Family, normalise: Callable[[Tensor], Tensor]) -> Stored:
    """The latent of a file. UsageError where there are several, or one of a picture as a condition."""
    with opened_safetensors(path) as file:
        shapes = {name: tensor.layout.shape for name, tensor in file.tensors.items()}
    conditioned = [name for name in shapes if name.startswith(("latents_control", "latents_image", "latents_clean"))]
    if conditioned:
        raise UsageError(f"{path}: {conditioned[0]} is a picture as a condition, which is not fed here")
    found = [(name, sides) for name in shapes if (sides := TENSOR.fullmatch(name))]
    if len(found) != 1:
        raise UsageError(
            f"{path}: {len(found)} tensors latents_FxHxW among {', '.join(shapes) or 'none'}; one is taken"
        )
    ((name, sides),) = found
    named = (int(sides["frames"]), int(sides["height"]), int(sides["width"]))
    shape = check_shape(f"{path}: {name}", shapes[name], named, family)
    return Stored(shape, file_hash(path), lambda: normalise(one_frame(tensor(path, name).float())))


def text_of(folder: Path, stem: str, arch: str) -> dict[str, Stored]:
    """The conditioning of the image or clip ``stem``; a clip's latents are named by its frames as well."""
    whole = re.sub(r"_\d+-\d+$", "", stem)
    path = next((p for of in (stem, whole) if (p := folder / f"{of}_{arch}_te.safetensors").is_file()), None)
    if path is None:
        raise UsageError(f"{folder}: no {stem}_{arch}_te.safetensors for the latents of {stem}; cache its text too")
    begins, ours = TEXTS[arch]
    with opened_safetensors(path) as file:
        shapes = {name: tensor.layout.shape for name, tensor in file.tensors.items()}
    name = next((name for name in shapes if name.startswith(begins)), None)
    if name is None or len(shapes[name]) != 2:
        raise UsageError(f"{path}: no {begins}* [tokens, width] among {', '.join(shapes) or 'none'}; cache it again")
    tokens, width = shapes[name]
    if arch != "wan":
        return {ours: Stored((tokens, width), file_hash(path), lambda: tensor(path, name))}
    if tokens > WAN_TOKENS:
        raise UsageError(f"{path}: {name} has {tokens} tokens, {WAN_TOKENS} are taken; cache it again")
    return {ours: Stored((WAN_TOKENS, width), file_hash(path), lambda: padded(tensor(path, name), WAN_TOKENS))}
