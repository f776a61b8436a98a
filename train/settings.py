"""Every setting of a training run: one dataclass, which the command line, TOML files and ``run.json`` share.

Resolved once: a default, else what the TOML file says, else what the command line says.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_args

from analysis.errors import UsageError


def option(
    default: Any, text: str, *, least: float | None = None, most: float | None = None, choices: tuple[str, ...] = ()
) -> Any:
    """A field with its help text, its smallest and largest value and its allowed words."""
    return field(default=default, metadata={"help": text, "least": least, "most": most, "choices": choices})


@dataclass(frozen=True)
class Settings:
    """A run as it was asked for. None: decided by the model, or as the text says."""

    arm: str = option("native", "How steps are made, such as demote:56@0.5 (see train arms).")
    steps: int = option(400, "Optimiser steps of the whole run.", least=1, most=10**7)
    deterministic: bool = option(False, "Bit-equal repeats, or an error. Stores a certificate.")

    model: str = option("mini", "mini, a folder in diffusers' layout, or a name on the hub.")
    latents: str | None = option(
        None, "Folder of a cache or, for a model of pixels, of pictures; default: its own corpus."
    )
    images: int | None = option(None, "How many images, from the first; default: all.", least=1)
    adapter: str | None = option(
        None, "LoRA file to go on from, with its rank, alpha and modules; default: a fresh one."
    )
    rank: int = option(16, "Of the LoRA.", least=1)
    alpha: float | None = option(None, "The LoRA's scale is alpha / rank; default: alpha = rank.", least=0)
    targets: str | None = option(None, "Modules that get a LoRA: a regular expression; default: the family's.")

    batch_size: int = option(1, "Samples that go through the model at once.", least=1, most=10**4)
    accumulation: int = option(1, "Batches for one optimiser step.", least=1)
    learning_rate: float = option(1e-4, "Its peak.", least=0)
    schedule: str = option(
        "constant", "Of the learning rate, after the warm-up.", choices=("constant", "linear", "cosine")
    )
    warmup: int = option(0, "Steps over which the learning rate rises.", least=0)
    weight_decay: float = option(0.01, "AdamW's.", least=0)
    beta1: float = option(0.9, "AdamW's, of the first moment.", least=0)
    beta2: float = option(0.999, "AdamW's, of the second moment.", least=0)
    epsilon: float = option(1e-8, "AdamW's.", least=0)
    adamw: str = option("foreach", "Which of torch's implementations.", choices=("single", "foreach", "fused"))
    clip: float = option(1.0, "Largest norm of a step's gradient; 0: any.", least=0)

    sigma_sampler: str = option("uniform", "uniform, sigmoid:s, logit-normal:m,s, mode, cosmap, shift:s, flux; @lo:hi.")
    weighting: str = option("none", "Of the loss by sigma: none, sigma-sqrt, min-snr:5.")
    seed: int = option(0, "Of every draw.")

    attention: str = option("sdpa", "sdpa, flash, math or racing.")
    weights: str = option("fp32", "Of the base model, as kept in memory and computed with.", choices=("fp32", "bf16"))
    precision: str = option("fp32", "bf16: mixed precision, the adapter stays float32.", choices=("fp32", "bf16"))
    activation_checkpointing: bool = option(False, "Compute activations again in the backward pass: less memory.")
    compile: bool = option(False, "Compile the transformer: faster steps after minutes of waiting.")
    device: str = option("auto", "cpu or cuda; auto: cuda where there is one.", choices=("auto", "cpu", "cuda"))
    threads: int | None = option(None, "Of the CPU; default: as torch chooses.", least=1)

    checkpoint_every: int = option(
        100, "Steps between checkpoints, besides the one at the end; 0: that one alone.", least=0
    )
    format: str = option(
        "diffusers", "kohya: adapter-kohya.safetensors besides adapter.safetensors.", choices=("diffusers", "kohya")
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            check(each.name, getattr(self, each.name), each.metadata)
        if not (self.beta1 < 1 and self.beta2 < 1):
            raise UsageError(f"beta1 {self.beta1:g}, beta2 {self.beta2:g}: both take 0 to below 1")

    @property
    def samples(self) -> int:
        """Of one optimiser step."""
        return self.batch_size * self.accumulation


def check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    """Raise UsageError where ``value`` is out of its range, none of the choices, or an empty text."""
    if value == "":
        raise UsageError(f"{shown(name)} '': an empty text; leave it out, or write what it is to be")
    if rules["choices"] and value not in rules["choices"]:
        raise UsageError(f"{shown(name)} {value}: takes {', '.join(rules['choices'])}")
    if rules["least"] is not None and value is not None and not rules["least"] <= value < float("inf"):
        finite = ", finite" if isinstance(value, float) else ""
        raise UsageError(f"{shown(name)} {value}: takes {rules['least']:g} or more{finite}")
    if rules["most"] is not None and value > rules["most"]:
        raise UsageError(f"{shown(name)} {value}: takes {rules['most']} at most")


def shown(name: str) -> str:
    """A setting as the command line writes it: ``batch_size`` -> ``--batch-size``."""
    return "--" + name.replace("_", "-")


def resolve(file: Path | None, given: Mapping[str, Any]) -> Settings:
    """Settings of a TOML ``file`` (or none) and of the command line, where None means not ``given``."""
    named = read(file) if file is not None else {}
    named |= {name: value for name, value in given.items() if value is not None}
    settings = Settings(**named)
    return settings if settings.adapter is None else as_adapter(settings, named)


def of_policy(file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` with the arm, the sampler and the weighting that ``analysis policy --write`` put into ``file``.

    UsageError for a file of anything else, and for another one of these given beside it.
    """
    named = read(file, "--policy", besides=(SAMPLES,))
    named.pop(SAMPLES, None)
    if not {"arm"} <= named.keys() <= {"arm", "sigma_sampler", "weighting"}:
        raise UsageError(
            f"--policy {file}: takes arm, sigma_sampler, weighting and samples and nothing else; other settings by "
            "--config"
        )
    for name, value in named.items():
        if given.get(name, None) not in (None, value):
            raise UsageError(f"{shown(name)} {given[name]}: {file} says {value}; give one of them")
    return {**given, **named}


def as_adapter(settings: Settings, named: Mapping[str, Any]) -> Settings:
    """``settings`` with rank and alpha of the adapter file. UsageError where others are ``named`` beside it."""
    from train import adapter_file

    of_file = adapter_file.settings(Path(str(settings.adapter)))
    if of_file is None:  # they differ by module: the model decides
        for name in {"rank", "alpha"} & named.keys():
            raise UsageError(f"{shown(name)} {named[name]}: those of {settings.adapter} differ; leave it out")
        return settings
    for name, value in of_file.items():
        if named.get(name, value) != value:
            raise UsageError(f"{shown(name)} {named[name]}: that of {settings.adapter} is {value}; leave it out")
    return replace(settings, rank=int(of_file["rank"]), alpha=of_file["alpha"])


def check_samples(file: Path, settings: Settings) -> None:
    """UsageError where the policy in ``file`` was judged for another number of samples a step."""
    judged = read(file, "--policy", besides=(SAMPLES,)).get(SAMPLES, settings.samples)
    if judged != settings.samples:
        raise UsageError(
            f"--policy {file}: judged for {judged} samples a step, the run has {settings.samples} (batch size x "
            f"accumulation), and a window treats a step only whole: run analysis policy --samples {settings.samples}"
        )


def read(file: Path, option: str = "--config", besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """The settings a TOML file names, with their types checked. besides: keys that are taken as they are."""
    if file.is_dir():
        raise UsageError(f"{option} {file}: a folder; give a TOML file")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: not a readable TOML file ({error})") from None
    tables = [key for key, value in table.items() if isinstance(value, dict)]
    if tables:
        raise UsageError(f"{file}: a table [{tables[0]}]; settings stand in the file without one")
    as_they_are = {key: table.pop(key) for key in besides if key in table}
    return {(name := known(file, key)): typed(file, name, value) for key, value in table.items()} | as_they_are


SAMPLES = "samples"  # of a policy's file, and no setting
NOT_IN_A_FILE = ("out", "config", "policy", "resume", "dry_run", "fresh")


def known(file: Path, key: str) -> str:
    """The setting that a key names; dashes and underscores are the same."""
    names = [each.name for each in fields(Settings)]
    name = key.replace("-", "_")
    if name in names:
        return name
    if name in NOT_IN_A_FILE:
        raise UsageError(f"{file}: {key} belongs to the command line alone; give it there, as {shown(name)}")
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise UsageError(f"{file}: unknown setting {key}; the nearest is {near} (train --help lists them)")


def typed(file: Path, name: str, value: Any) -> Any:
    """``value``, if its type is that of the setting."""
    declared = type_of(name)
    if declared is float and type(value) is int:
        return float(value)
    if type(value) is not declared:
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise UsageError(f"{file}: {name} = {value!r}; it takes {words[declared]}")
    return value


def type_of(name: str) -> type:
    """str, int, float or bool."""
    declared = next(each.type for each in fields(Settings) if each.name == name)
    return next(each for each in (get_args(declared) or (declared,)) if each is not type(None))  # pyright: ignore


def toml(settings: Settings) -> str:
    """The settings as a TOML file; those that are None are comments."""
    lines = []
    for name, value in asdict(settings).items():
        # A JSON text, number or boolean is one of TOML too.
        lines.append(
            f"# {name}: as by default" if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}"
        )
    return "\n".join(lines)
