"""One LoRA file: the factors, the scale and the scale's rule of every module.

    file = read(Path("adapter.safetensors"))
    file.modules["transformer_blocks.0.attn.to_q"].up          # [out, rank]

Names are dotted where the file spells dots, else as the file has them (``double_blocks_0_img_attn_qkv``). Modules of
text encoders are listed and not read. Anything that is not a plain LoRA of matrices is refused by name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analysis.bytewise import RawTensor
from analysis.dtypes import patterns, values
from analysis.errors import UsageError
from analysis.lora import scale_rules
from analysis.lora.original_names import fold
from analysis.lora.scale_rules import Settings
from analysis.lora.tensor_names import Part, of_text_encoder, other_kind, parsed
from analysis.safetensors_file import SafetensorsFile, opened

FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_IN_FOLDERS = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")


@dataclass(frozen=True, eq=False)
class LoraModule:
    """dW = scale * up @ down [out, in]; up [out, rank] and down [rank, in] are float32, or float64 as in the file."""

    name: str
    up: np.ndarray
    down: np.ndarray
    scale: float
    rule: str

    @property
    def rank(self) -> int:
        return self.down.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """[out, in]."""
        return self.up.shape[0], self.down.shape[1]


@dataclass(frozen=True, eq=False)
class LoraFile:
    """``modules`` by name in the file's order; ``warnings`` are lines for the user."""

    path: Path
    modules: Mapping[str, LoraModule]
    text_encoder: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The scale rules of its modules, each once."""
        return tuple(dict.fromkeys(module.rule for module in self.modules.values()))


@dataclass
class _Parts:
    """The tensors of one module, and how they are spelled."""

    tensors: dict[str, tuple[str, RawTensor]]  # role -> name in the file, tensor
    letters: bool = False
    default: bool = False


def read(path: Path) -> LoraFile:
    """Read a LoRA, whole; ``path`` may be a folder as PEFT and diffusers write it.

    Raises UsageError, one line with file and tensor, for what is no LoRA or none of a kind that is read here.
    """
    path = _in_folder(path)
    with opened(path) as file:
        parts, text_encoder = _sorted_out(file, path)
        header = scale_rules.header_settings(file.metadata, path)
        sidecar = scale_rules.sidecar_settings(path) if any(each.letters for each in parts.values()) else None
        modules = {name: _module(name, each, header, sidecar, path) for name, each in parts.items()}
        peft = any(name.startswith("base_model.model.") for name in file.tensors)
    warnings = (*_rank_warnings(modules.values(), header, sidecar, path), *_alpha_warnings(modules, peft, path))
    return LoraFile(path, modules, text_encoder, warnings)


def _in_folder(path: Path) -> Path:
    if not path.is_dir():
        return path
    found = [path / name for name in _IN_FOLDERS if (path / name).is_file()]
    if len(found) != 1:
        have = "both" if found else "none"
        raise UsageError(f"{path} is a folder with {have} of {' and '.join(_IN_FOLDERS)}: give the file itself")
    return found[0]


def _sorted_out(file: SafetensorsFile, path: Path) -> tuple[dict[str, _Parts], tuple[str, ...]]:
    """The tensors by module and role, and the text encoders' modules."""
    parts: dict[str, _Parts] = {}
    text_encoder: dict[str, None] = {}
    strange: list[str] = []
    for name, tensor in file.tensors.items():
        if not name.isprintable():
            raise UsageError(f"{path}: {name!r:.200} is no name of a LoRA's tensor; give a file without it")
        if module := of_text_encoder(name):
            text_encoder[module] = None
        elif kind := other_kind(name):
            raise UsageError(f"{path}: {name:.200} is {kind}, which cannot be compared here; give a plain LoRA")
        elif part := parsed(name):
            _add(parts, part, name, tensor, path)
        else:
            strange.append(name)
    if not any({"up", "down"} & each.tensors.keys() for each in parts.values()):
        if text_encoder:
            raise UsageError(
                f"{path}: a LoRA of text encoders alone ({next(iter(text_encoder))}); give one of a transformer"
            )
        first = f", such as {strange[0]:.200}" if strange else ""
        raise UsageError(
            f"{path}: no LoRA among its {len(file.tensors)} tensors{first}; give an adapter, not a model's weights"
        )
    if strange:
        raise UsageError(f"{path}: {strange[0]:.200} is no part of a plain LoRA; give a file without it")
    _check_names(parts, path)
    return parts, tuple(text_encoder)


def _add(parts: dict[str, _Parts], part: Part, name: str, tensor: RawTensor, path: Path) -> None:
    own = parts.setdefault(part.module, _Parts({}))
    if part.role in own.tensors:
        raise UsageError(
            f"{path}: {own.tensors[part.role][0]:.200} and {name:.200} are both {part.role} of one module; keep one"
        )
    own.tensors[part.role] = name, tensor
    own.letters |= part.letters
    own.default |= part.default


def _check_names(parts: Mapping[str, _Parts], path: Path) -> None:
    """Every module has both factors, and no two are one module in kohya's spelling."""
    folded: dict[str, str] = {}
    for module, each in parts.items():
        for role in ("up", "down"):
            if role not in each.tensors:
                name = next(iter(each.tensors.values()))[0]
                raise UsageError(f"{path}: {name:.200} has no {role} beside it; give a complete file")
        if (other := folded.setdefault(fold(module), module)) != module:
            raise UsageError(f"{path}: modules {other:.200} and {module:.200} are one name without dots; keep one")


def _module(name: str, parts: _Parts, header: Settings | None, sidecar: Settings | None, path: Path) -> LoraModule:
    up, down = (_matrix(*parts.tensors[role], path) for role in ("up", "down"))
    rank = down.shape[0]
    if up.shape[1] != rank:
        raise UsageError(
            f"{path}: {parts.tensors['up'][0]:.200} is {list(up.shape)} and its down {list(down.shape)}, "
            "of different ranks; give a file that was written whole"
        )
    settings = header or sidecar
    if "alpha" in parts.tensors:
        scale, rule = scale_rules.from_alpha(_alpha(*parts.tensors["alpha"], path), rank)
    elif settings is not None:
        scale, rule = settings.scale(name, rank), settings.rule
    else:
        scale, rule = 1.0, scale_rules.DIFFSYNTH if parts.default else scale_rules.ALPHA_IS_RANK
    return LoraModule(name, up, down, scale, rule)


def _matrix(name: str, tensor: RawTensor, path: Path) -> np.ndarray:
    """A factor as float32, which holds every narrower format exactly, or float64."""
    layout = tensor.layout
    if layout.dtype not in FLOATS:
        raise UsageError(f"{path}: {name:.200} has dtype {layout.dtype}; give a file of {', '.join(FLOATS)}")
    if len(layout.shape) == 4:
        raise UsageError(f"{path}: {name:.200}, {list(layout.shape)}, is a convolution's; give a LoRA of linear layers")
    if len(layout.shape) != 2 or not layout.elements:
        raise UsageError(f"{path}: {name:.200}, {list(layout.shape)}, is no matrix; give a LoRA of linear layers")
    found = _values(tensor).reshape(layout.shape)
    if not np.isfinite(found).all():
        raise UsageError(f"{path}: {name:.200} holds NaN or infinity; give an adapter of a run that did not diverge")
    return found if layout.dtype == "F64" else found.astype(np.float32)


def _alpha(name: str, tensor: RawTensor, path: Path) -> float:
    if tensor.layout.elements != 1 or tensor.layout.dtype not in (*FLOATS, "I64", "I32", "U8"):
        raise UsageError(f"{path}: {name:.200}, {tensor.layout}, is no single number; give a file with one alpha each")
    alpha = float(_values(tensor)[0])
    if not np.isfinite(alpha):
        raise UsageError(f"{path}: {name:.200} is {alpha}; give a file with finite alphas")
    return alpha


def _values(tensor: RawTensor) -> np.ndarray:
    data = bytearray(tensor.layout.bytes)
    tensor.read_into(0, memoryview(data))
    return values(tensor.layout.dtype, patterns(tensor.layout.dtype, memoryview(data)))


def _rank_warnings(
    modules: Iterable[LoraModule], header: Settings | None, sidecar: Settings | None, path: Path
) -> Iterable[str]:
    """One line where settings state another rank than the tensors have."""
    for module in modules:
        settings = next((each for each in (header, sidecar) if each and each.rule == module.rule), None)
        stated = settings and settings.stated_rank(module.name)
        if stated is not None and stated != module.rank:
            yield (
                f"{path}: {module.rule} gives {module.name} rank {stated:g}, its tensors have {module.rank}; "
                f"the tensors' is used, scale {module.scale:g}"
            )
            return


def _alpha_warnings(modules: Mapping[str, LoraModule], peft: bool, path: Path) -> Iterable[str]:
    """One line where alpha = rank is a guess that may well be wrong."""
    guessed = [module for module in modules.values() if module.rule == scale_rules.ALPHA_IS_RANK]
    ranks = sorted({module.rank for module in guessed})
    if len(ranks) > 1:
        yield f"{path}: ranks {', '.join(map(str, ranks))} and no alpha; each module's is taken as its rank, scale 1"
    elif guessed and peft:
        yield f"{path}: no alpha, and no {scale_rules.SIDECAR} with one beside it; it is taken as the rank, scale 1"
