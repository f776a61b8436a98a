"""Latents and conditioning that lie on the disk, as ``Latents``: read when they are asked for, and checked."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families import Family, check_condition, check_latent

KEPT = 512  # latents, and as many texts, in memory


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor on the disk: its shape, the hash of what it is made of, and what reads it."""

    shape: tuple[int, ...]
    sha256: str
    read: Callable[[], Tensor]


@dataclass(frozen=True)
class StoredImage:
    """One image. latents and repromoted by tier; text: the conditioning by the family's names."""

    latents: Mapping[int, Stored]
    text: Mapping[str, Stored]
    repromoted: Mapping[int, Stored] = field(default_factory=dict)
    reencoded: Stored | None = None

    def all(self) -> dict[str, Stored]:
        """Every tensor, by what it is."""
        found = {f"latent {tier}": stored for tier, stored in self.latents.items()}
        found |= {f"repromoted {tier}": stored for tier, stored in self.repromoted.items()}
        found |= {f"condition {name}": stored for name, stored in self.text.items()}
        return found if self.reencoded is None else {**found, "reencoded": self.reencoded}


class CachedLatents:
    """``Latents`` of images by name; tier: the native one, in pixels; made_by: what makes more of them, in words."""

    def __init__(self, family: Family, tier: int, images: Mapping[str, StoredImage], made_by: str) -> None:
        self.tier, self.names = tier, tuple(images)
        self._images, self._made_by = images, made_by
        for name, image in images.items():
            self._at(image.latents, name, tier, "latent")
            check_condition(family, name, {key: torch.empty(s.shape, device="meta") for key, s in image.text.items()})
            for what, stored in image.all().items():
                if not what.startswith("condition"):
                    check_latent(family, stored.shape)
        self._latent = lru_cache(maxsize=KEPT)(lambda name, tier: self._read("latents", name, tier, "latent"))
        self._again = lru_cache(maxsize=KEPT)(lambda name, tier: self._read("repromoted", name, tier, "latent by way"))
        self._condition = lru_cache(maxsize=KEPT)(
            lambda name: {key: stored.read() for key, stored in images[name].text.items()}
        )

    def shape(self, name: str, tier: int) -> tuple[int, int]:
        shape = self._at(self._images[name].latents, name, tier, "latent").shape
        return shape[-2], shape[-1]

    def latent(self, name: str, tier: int) -> Tensor:
        return self._latent(name, tier)

    def repromoted(self, name: str, tier: int) -> Tensor:
        return self._again(name, tier)

    def reencoded(self, name: str) -> Tensor:
        stored = self._images[name].reencoded
        if stored is None:
            raise UsageError(f"image {name}: no latent after a round trip; {self._made_by}")
        return stored.read().float()

    def condition(self, name: str) -> dict[str, Tensor]:
        return dict(self._condition(name))

    def digest(self) -> str:
        total = hashlib.sha256(f"cache at {self.tier}\n".encode())
        for name, image in self._images.items():
            for what, stored in sorted(image.all().items()):
                total.update(f"{name} {what} {list(stored.shape)} {stored.sha256}\n".encode())
        return total.hexdigest()

    def _read(self, kind: str, name: str, tier: int, what: str) -> Tensor:
        return self._at(getattr(self._images[name], kind), name, tier, what).read().float()

    def _at(self, kind: Mapping[int, Stored], name: str, tier: int, what: str) -> Stored:
        if tier not in kind:
            there = ", ".join(map(str, sorted(kind))) or "none"
            raise UsageError(f"image {name}: no {what} of tier {tier}; there: {there}; {self._made_by}")
        return kind[tier]
