"""A whole probe store with known answers, in the schema that `probes grad` writes.

    data = store(relative_bias={"demote:56": [0.05, 0.3, 0.02]}, sigmas=[0.3, 0.6, 0.9])

Arms: ``native``; ``redraw``, the same images with fresh noise; ``gain:G``, the native gradient times
G exactly; any other name, a planted bias of ``relative_bias[arm]`` |mu| in every block.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr
from jaxtyping import Float

from analysis.schema import template
from analysis.synthetic.planted import Planted, power_law, sample

ARMS = ("native", "redraw", "gain:1.05", "demote:56", "demote:48")
SIGMAS = (0.3, 0.45, 0.6, 0.75, 0.9)


def gram_arrays(
    samples: Float[np.ndarray, "*cells arm image draw parameter"],
) -> tuple[
    Float[np.ndarray, "*cells arm image arm image"],
    Float[np.ndarray, "*cells image arm draw arm draw"],
    Float[np.ndarray, "*cells image arm draw arm"],
]:
    """``gram_image`` (Eq. 4), ``gram_draw`` (Eq. 5) and ``gram_cross`` (Eq. 5b) of per-sample gradients."""
    *lead, arms, images, draws, parameters = samples.shape
    means = samples.mean(-2)
    rows = means.reshape(*lead, arms * images, parameters)
    image = (rows @ rows.swapaxes(-1, -2)).reshape(*lead, arms, images, arms, images)
    per_image = np.moveaxis(samples, -4, -3).reshape(*lead, images, arms * draws, parameters)
    draw = (per_image @ per_image.swapaxes(-1, -2)).reshape(*lead, images, arms, draws, arms, draws)
    sums = np.moveaxis(means.sum(-2), -1, -2)[..., None, :, :]
    cross = (per_image @ sums).reshape(*lead, images, arms, draws, arms)
    return image, draw, cross


def _cell(
    arms: Sequence[str],
    relative_bias: Mapping[str, float],
    world: Planted,
    generator: np.random.Generator,
    images: int,
    draws: int,
    fixed_corpus: bool,
) -> Float[np.ndarray, "arm image draw parameter"]:
    """Gradients of every arm in one cell and block, all against one native arm."""
    planted = [arm for arm in arms if arm not in ("native", "redraw") and not arm.startswith("gain:")]
    made = sample(
        world,
        generator,
        repeats=1,
        images=images,
        draws=draws,
        fixed_corpus=fixed_corpus,
        relative_biases=[relative_bias.get(arm, 0.0) for arm in planted],
        redraws=1,
    ).gradients[0]
    by_name = dict(zip(["native", *planted, "redraw"], made, strict=True))
    gains = {arm: made[0] * float(arm.removeprefix("gain:")) for arm in arms if arm.startswith("gain:")}
    return np.stack([(by_name | gains)[arm] for arm in arms])


def store(
    *,
    arms: Sequence[str] = ARMS,
    sigmas: Sequence[float] = SIGMAS,
    blocks: Sequence[str] = ("block_0", "block_1", "block_2"),
    metrics: Sequence[str] = ("raw",),
    images: int = 12,
    draws: int = 4,
    relative_bias: Mapping[str, float | Sequence[float]] | None = None,
    world: Planted | None = None,
    population: str = "images",
    cross: bool = True,
    seed: int = 0,
) -> xr.Dataset:
    """A probe store whose planted relative bias is known, per arm and sigma.

    ``relative_bias[arm]`` is rho of that arm at every sigma, or one value per sigma; arms not named have
    none. It holds in each block and in their sum. ``population="corpus"`` makes it true of these very
    images instead of the population they come from. ``cross=False`` leaves ``gram_cross`` out.
    """
    if world is None:
        world = Planted(power_law(1.0, 64), noise_scale=3.0, difference=0.2)
    planted = {arm: np.broadcast_to(value, len(sigmas)) for arm, value in (relative_bias or {}).items()}
    generator = np.random.default_rng(seed)
    cells: dict[str, list[np.ndarray]] = {"gram_image": [], "gram_draw": [], "gram_cross": []}
    for _ in metrics:
        for index in range(len(sigmas)):
            here = {arm: float(values[index]) for arm, values in planted.items()}
            for _ in blocks:
                samples = _cell(arms, here, world, generator, images, draws, population == "corpus")
                for name, array in zip(cells, gram_arrays(samples), strict=True):
                    cells[name].append(array)
    lead = (len(metrics), len(sigmas), len(blocks))
    arrays = {name: np.stack(parts).reshape(*lead, *parts[0].shape) for name, parts in cells.items()}
    return as_dataset(arrays, list(arms), list(sigmas), list(blocks), list(metrics), cross, generator)


def as_dataset(
    arrays: Mapping[str, np.ndarray],
    arms: list[str],
    sigmas: list[float],
    blocks: list[str],
    metrics: list[str],
    cross: bool,
    generator: np.random.Generator,
) -> xr.Dataset:
    """Wrap Gram arrays as the schema names them, with the small arrays that go with them."""
    images, draws = arrays["gram_draw"].shape[3], arrays["gram_draw"].shape[5]
    cell = ("metric", "sigma", "block")
    shape = (len(sigmas), len(arms), images, draws)
    variables: dict[str, tuple[tuple[str, ...], np.ndarray]] = {
        "gram_image": ((*cell, "arm", "image", "arm_2", "image_2"), arrays["gram_image"]),
        "gram_draw": ((*cell, "image", "arm", "draw", "arm_2", "draw_2"), arrays["gram_draw"]),
        "loss": (("sigma", "arm", "image", "draw"), generator.chisquare(64, shape) / 64),
        "seconds": (("sigma", "arm"), np.full(shape[:2], 0.5)),
        "tokens": (("arm", "image"), np.full((len(arms), images), 256, dtype=np.int64)),
        "images_used": (("sigma",), np.full(len(sigmas), images, dtype=np.int64)),
        "done": (("sigma",), np.ones(len(sigmas), dtype=bool)),
    }
    if cross:
        variables["gram_cross"] = ((*cell, "image", "arm", "draw", "arm_2"), arrays["gram_cross"])
    names = [f"image_{place:03d}" for place in range(images)]
    dataset = template(metrics, sigmas, blocks, arms, names, range(draws), cross=cross)
    for name, (dims, values) in variables.items():
        dataset[name] = (dims, values, dataset[name].attrs)
    return dataset
