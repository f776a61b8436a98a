"""Latents as tokens: patches of patch x patch latent pixels, channels first inside a token, in row order."""

from torch import Tensor


def pack(latent: Tensor, patch: int) -> Tensor:
    """[B, C, H, W] -> [B, (H/p)(W/p), C p p]."""
    batch, channels, height, width = latent.shape
    rows, columns = height // patch, width // patch
    tokens = latent.reshape(batch, channels, rows, patch, columns, patch).permute(0, 2, 4, 1, 3, 5)
    return tokens.reshape(batch, rows * columns, channels * patch * patch)


def unpack(tokens: Tensor, patch: int, channels: int, height: int, width: int) -> Tensor:
    """[B, (H/p)(W/p), C p p] -> [B, C, H, W]."""
    batch = tokens.shape[0]
    latent = tokens.reshape(batch, height // patch, width // patch, channels, patch, patch)
    return latent.permute(0, 3, 1, 4, 2, 5).reshape(batch, channels, height, width)
