"""Latents and conditioning that are there already, as tensors: what caches are read into, and tests hand in."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from analysis.errors import UsageError
from train.families import Family, check_condition, check_latent, unconditional


class TensorLatents:
    """``Latents`` of tensors by image, tier and name, each checked against the family that will take it.

    tier: the native one, in pixels; latents: image -> tier -> [C, H, W], or [C, F, H, W] of a clip; conditions:
    image -> the family's names -> tensor without a batch axis, by default the unconditional one; repromoted: image
    -> tier -> the latent of pixels taken down to that tier and up again, on the native grid; reencoded: image -> the
    latent after a round trip through the autoencoder.
    """

    def __init__(
        self,
        family: Family,
        tier: int,
        latents: Mapping[str, Mapping[int, Tensor]],
        conditions: Mapping[str, Mapping[str, Tensor]] | None = None,
        repromoted: Mapping[str, Mapping[int, Tensor]] | None = None,
        reencoded: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.tier, self.names = tier, tuple(latents)
        without_text = {name: value[0] for name, value in unconditional(family, 1).items()}
        self._latents, self._repromoted = latents, repromoted or {}
        self._reencoded = {name: {tier: latent} for name, latent in (reencoded or {}).items()}
        self._conditions = dict.fromkeys(latents, without_text) if conditions is None else conditions
        for name in self.names:
            self.shape(name, tier)
            if name not in self._conditions:
                raise UsageError(f"conditioning of {name}: there is none; encode its caption")
            check_condition(family, name, self._conditions[name])
            for tensor in [each for kind in self._kinds() for each in kind.get(name, {}).values()]:
                check_latent(family, tensor.shape)

    def shape(self, name: str, tier: int) -> tuple[int, int]:
        latent = self._at(self._latents, name, tier, "latent")
        return latent.shape[-2], latent.shape[-1]

    def latent(self, name: str, tier: int) -> Tensor:
        return self._at(self._latents, name, tier, "latent").float()

    def repromoted(self, name: str, tier: int) -> Tensor:
        return self._at(self._repromoted, name, tier, "latent by way").float()

    def reencoded(self, name: str) -> Tensor:
        return self._at(self._reencoded, name, self.tier, "latent after a round trip").float()

    def condition(self, name: str) -> dict[str, Tensor]:
        return dict(self._conditions[name])

    def digest(self) -> str:
        total = hashlib.sha256(f"tensors at {self.tier}\n".encode())
        for kind, tensors in (
            ("latent", self._latents),
            ("repromoted", self._repromoted),
            ("reencoded", self._reencoded),
            ("condition", self._conditions),
        ):
            for name in self.names:
                for key, tensor in sorted(tensors.get(name, {}).items()):
                    total.update(f"{kind} {name} {key} {tensor.dtype} {list(tensor.shape)}\n".encode())
                    total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return total.hexdigest()

    def _kinds(self) -> tuple[Mapping[str, Mapping[int, Tensor]], ...]:
        return self._latents, self._repromoted, self._reencoded

    def _at(self, kind: Mapping[str, Mapping[int, Tensor]], name: str, tier: int, what: str) -> Tensor:
        tiers = kind.get(name, {})
        if tier not in tiers:
            there = ", ".join(map(str, sorted(tiers))) or "none"
            raise UsageError(f"image {name}: no {what} of tier {tier}; there: {there}; encode that tier too")
        return tiers[tier]
