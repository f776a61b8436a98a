"""Per-sample gradients drawn from a world whose mean, covariance and bias are known.

A sample is (image, draw). The baseline's gradient is mu + between-image effect + within-image
effect; the treatment adds a bias beta and a disturbance of its own, correlated with the baseline's:

    g(0, i, d) = mu + s_i (B_i + W_id)        delta(i, d) = beta + f s_i (c (B_i + W_id) + sqrt(1 - c^2) (B'_i + W'_id))

B, W are independent with the planted covariance spectrum, c = ``correlation``, f = ``difference``,
and s_i is 1 (light tails) or log-normal with mean square 1 (heavy tails).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

DIRECTIONS = ("leading", "across", "mixed", "mean")


def power_law(exponent: float, parameters: int = 96) -> Float[np.ndarray, " parameter"]:
    """Eigenvalues k^-exponent, normalised to trace 1: flat at 0, steep at 2."""
    values = np.arange(1, parameters + 1, dtype=np.float64) ** -exponent
    return values / values.sum()


@dataclass(frozen=True)
class Planted:
    """One world: what is true of the gradients of the baseline and of one treated arm.

    ``spectrum``       eigenvalues of the noise covariance, any positive scale
    ``noise_scale``    S / |mu|^2 of one sample (Eq. 10)
    ``between``        share of S that lies between images, in [0, 1]
    ``difference``     f, standard deviation of the treated arm's disturbance over the baseline's
    ``correlation``    c, its correlation with the baseline's noise
    ``relative_bias``  rho = |beta| / |mu| (Eq. 9)
    ``direction``      of beta: ``leading`` (the first eigenvector), ``across`` (the trailing half of the
                       spectrum), ``mixed`` (drawn from the spectrum, 0.3 of it along mu), ``mean`` (along mu, a gain)
    ``tail``           log standard deviation h of the per-image scale exp(h z - h^2); 0 is Gaussian
    ``mean``           direction of mu: drawn from the ``spectrum``, or ``across`` it
    """

    spectrum: np.ndarray
    noise_scale: float = 5.0
    between: float = 0.3
    difference: float = 0.3
    correlation: float = 0.5
    relative_bias: float = 0.0
    direction: str = "mixed"
    tail: float = 0.0
    mean: str = "spectrum"

    def with_bias(self, relative_bias: float) -> "Planted":
        """The same world with another relative bias."""
        return replace(self, relative_bias=relative_bias)


def _unit(vectors: Float[np.ndarray, "*lead parameter"]) -> Float[np.ndarray, "*lead parameter"]:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _across(
    generator: np.random.Generator, lead: tuple[int, ...], parameters: int
) -> Float[np.ndarray, "*lead parameter"]:
    vectors = generator.standard_normal((*lead, parameters))
    vectors[..., : parameters // 2] = 0.0
    return _unit(vectors)


def _mean(world: Planted, generator: np.random.Generator, repeats: int) -> Float[np.ndarray, "repeat parameter"]:
    """Directions of mu, of length 1, one per repeat."""
    scale = np.sqrt(world.spectrum / world.spectrum.sum())
    if world.mean == "across":
        return _across(generator, (repeats,), len(scale))
    return _unit(generator.standard_normal((repeats, len(scale))) * scale)


def _bias(
    world: Planted, generator: np.random.Generator, mean: Float[np.ndarray, "repeat parameter"]
) -> Float[np.ndarray, "repeat parameter"]:
    """Directions of beta, of length 1, one per repeat."""
    if world.direction == "leading":
        bias = np.zeros_like(mean)
        bias[:, 0] = 1.0
        return bias
    if world.direction == "across":
        return _across(generator, mean.shape[:1], mean.shape[1])
    if world.direction == "mean":
        return mean
    if world.direction == "mixed":
        side = generator.standard_normal(mean.shape) * np.sqrt(world.spectrum / world.spectrum.sum())
        side = _unit(side - (side * mean).sum(-1, keepdims=True) * mean)
        return 0.3 * mean + np.sqrt(1 - 0.3**2) * side
    raise ValueError(f"direction {world.direction!r} is not one of {DIRECTIONS}")


@dataclass(frozen=True)
class Draws:
    """Sampled gradients with what is true of them.

    ``mean`` is mu, ``bias`` beta of every treated arm, ``image_bias`` the bias of each image without draw noise,
    ``scale`` s_i of every image.
    """

    gradients: Float[np.ndarray, "repeat arm image draw parameter"]
    mean: Float[np.ndarray, "repeat parameter"]
    bias: Float[np.ndarray, "repeat treated parameter"]
    image_bias: Float[np.ndarray, "repeat treated image parameter"]
    scale: Float[np.ndarray, "repeat image"]


def sample(
    world: Planted,
    generator: np.random.Generator,
    *,
    repeats: int,
    images: int,
    draws: int = 1,
    fixed_corpus: bool = False,
    relative_biases: Sequence[float] | None = None,
    redraws: int = 0,
) -> Draws:
    """Gradients of the baseline (arm 0), one arm per planted relative bias, then ``redraws`` arms; |mu| = 1.

    Without ``relative_biases`` there is one treated arm, of ``world.relative_bias``. A redraw has the
    baseline's image effects and fresh within-image noise: its bias is exactly zero.
    With ``fixed_corpus`` the image effects are shifted so that the mean over these very images is
    exactly mu, and that of delta exactly beta: then the planted bias is true of the corpus. Without
    it the planted bias is true of the population that the images come from.
    """
    biases = (world.relative_bias,) if relative_biases is None else relative_biases
    scale = np.sqrt(world.noise_scale * world.spectrum / world.spectrum.sum())
    direction = _mean(world, generator, repeats)
    mean = direction[:, None, None]
    spread = np.exp(world.tail * generator.standard_normal((repeats, images, 1, 1)) - world.tail**2)

    def between() -> np.ndarray:
        effect = spread * scale * np.sqrt(world.between) * generator.standard_normal((repeats, images, 1, len(scale)))
        return effect - effect.mean(1, keepdims=True) if fixed_corpus else effect

    def within() -> np.ndarray:
        shape = (repeats, images, draws, len(scale))
        return spread * scale * np.sqrt(1.0 - world.between) * generator.standard_normal(shape)

    own, inside = between(), within()
    arms = [mean + own + inside]
    biases_drawn, image_biases = [np.zeros((repeats, 0, len(scale)))], [np.zeros((repeats, 0, images, len(scale)))]
    for relative_bias in biases:
        bias = relative_bias * _bias(world, generator, direction)
        fresh = np.sqrt(1.0 - world.correlation**2)
        image_bias = bias[:, None, None] + world.difference * (world.correlation * own + fresh * between())
        noise = world.difference * (world.correlation * inside + fresh * within())
        arms.append(arms[0] + image_bias + noise)
        biases_drawn.append(bias[:, None])
        image_biases.append(image_bias[:, None, :, 0])
    arms.extend(mean + own + within() for _ in range(redraws))
    joined = np.concatenate(biases_drawn, 1), np.concatenate(image_biases, 1)
    return Draws(np.stack(arms, 1), direction, *joined, spread[:, :, 0, 0])
