"""The scale of a LoRA module, and where it was found: dW = scale * up @ down.

In order: the module's ``.alpha`` tensor; ``lora_adapter_metadata`` in the file's header (diffusers); ``adapter_config
.json`` beside it (PEFT); without any of them alpha = rank, a scale of 1. The rank is that of the tensors, always: what
the settings say of it is compared and not used.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.errors import UsageError

ALPHA_TENSOR = "alpha tensor"
ALPHA_ZERO = "alpha tensor of 0: alpha = rank"
HEADER = "header metadata"
SIDECAR = "adapter_config.json"
ALPHA_IS_RANK = "alpha = rank"
DIFFSYNTH = "DiffSynth: scale 1"

METADATA = "lora_adapter_metadata"
_COMPONENTS = ("transformer.", "unet.")


@dataclass(frozen=True)
class Settings:
    """An adapter's settings as PEFT writes them. ``alpha_pattern`` and ``rank_pattern``: for modules that match."""

    rule: str
    alpha: float
    alpha_pattern: Mapping[str, float]
    rank: float | None
    rank_pattern: Mapping[str, float]
    rslora: bool

    def scale(self, module: str, rank: int) -> float:
        """alpha / rank, or alpha / sqrt(rank) (rank-stabilised, arXiv:2312.03732)."""
        alpha = _matching(self.alpha_pattern, module, self.alpha)
        return float(alpha or 0.0) / (math.sqrt(rank) if self.rslora else rank)

    def stated_rank(self, module: str) -> float | None:
        return _matching(self.rank_pattern, module, self.rank)


def from_alpha(alpha: float, rank: int) -> tuple[float, str]:
    """Scale and rule of a module with an alpha tensor."""
    return (alpha / rank, ALPHA_TENSOR) if alpha else (1.0, ALPHA_ZERO)


def header_settings(metadata: Mapping[str, str], path: Path) -> Settings | None:
    """Those of the transformer in the header's metadata, if there are any."""
    if METADATA not in metadata:
        return None
    where = f"{path}: its {METADATA}"
    found = _object(metadata[METADATA], where)
    for component in _COMPONENTS:
        own = {key.removeprefix(component): value for key, value in found.items() if key.startswith(component)}
        if own:
            return _settings(own, HEADER, where)
    return _settings(found, HEADER, where)


def sidecar_settings(path: Path) -> Settings | None:
    """Those of ``adapter_config.json`` in the folder of the adapter ``path``, if it is there."""
    sidecar = path.parent / SIDECAR
    try:
        text = sidecar.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{sidecar} cannot be read ({error!s:.80}): mend or remove it") from None
    return _settings(_object(text, str(sidecar)), SIDECAR, str(sidecar))


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no valid JSON ({error!s:.80}): mend or remove it") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} is no JSON object: mend or remove it")
    return found


def _settings(found: Mapping[str, Any], rule: str, where: str) -> Settings | None:
    """None where no alpha is stated. UsageError for settings of another kind of adapter, or that are no numbers."""
    kind = found.get("peft_type") or "LORA"
    if kind != "LORA":
        raise UsageError(f"{where} says peft_type {kind!r:.40}: give a plain LoRA")
    if found.get("use_dora"):
        raise UsageError(f"{where} says use_dora: a DoRA's change needs the base model's weights; give a plain LoRA")
    if "lora_alpha" not in found:
        return None
    patterns = {key: found.get(key) or {} for key in ("alpha_pattern", "rank_pattern")}
    for key, pattern in patterns.items():
        if not isinstance(pattern, dict):
            raise UsageError(f"{where} has {key} {pattern!r:.40}, which names no modules: mend or remove it")
        for module, value in pattern.items():
            _check(value, f"{key} of {module!r:.60}", where)
            _check_pattern(module, where)
    _check(found["lora_alpha"], "lora_alpha", where)
    if found.get("r") is not None:
        _check(found["r"], "r", where)
    return Settings(
        rule, found["lora_alpha"], patterns["alpha_pattern"], found.get("r"), patterns["rank_pattern"],
        bool(found.get("use_rslora")),
    )  # fmt: skip


def _check(value: Any, what: str, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
        raise UsageError(f"{where} has {what} = {value!r:.40}, which is no number: mend or remove it")


def _check_pattern(pattern: str, where: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{where} has {pattern!r:.60}, no regular expression ({error}): mend or remove it") from None


def _matching(patterns: Mapping[str, float], module: str, otherwise: float | None) -> float | None:
    """PEFT's rule: the first pattern that the whole name ends with, at a dot."""
    for pattern, value in patterns.items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return otherwise
