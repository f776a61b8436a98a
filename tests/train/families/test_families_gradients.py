"""Each family's gradients under both engines, and a probe's Gram against plain backward passes written out here."""

from pathlib import Path

import numpy as np
import pytest
import torch

from analysis.errors import UsageError
from probes.gradients import engine
from probes.measure import StepGradients
from probes.metrics import METRICS, Point
from probes.room import Room
from probes.sweep import Sweep, cell
from train.arms import NATIVE_ARM, parse
from train.families import block_of, blocks
from train.objective import interpolate
from train.plan import Sample
from train.step import Source, clean_latent, noise_for

SIGMA, DRAWS = 0.6, 2
ROOM = Room(0, 0, 0, in_memory=True, cross=True, folder=Path())


def measure(found, parameters, source, name):
    """The probe's gradients, by the engine of that name."""
    detached = {key: p.detach() for key, p in parameters.items()}
    return StepGradients(found.transformer, detached, source, engine(name), 4, "sdpa")


def arms_of(family):
    """Native, a smaller grid, and the smaller grid with stretched positions where there are any."""
    texts = ["demote:48"] if family.name == "sd3" else ["demote:48", "demote:48+rope:pi"]
    return (NATIVE_ARM, *map(parse, texts))


def test_engines_agree_where_both_can(tiny_family):
    found, parameters = tiny_family.loaded()
    source = Source(tiny_family.latents(), found.family, seed=0)
    samples = [Sample("image 0", 0), Sample("image 1", 1)]
    if found.family.loop_only:
        with pytest.raises(UsageError, match=f"engine func: not for {found.family.name}.*--engine loop"):
            measure(found, parameters, source, "func")
        return
    for arm in arms_of(found.family):
        by_func, by_loop = (measure(found, parameters, source, name)(arm, SIGMA, samples) for name in ("func", "loop"))
        assert torch.allclose(by_func.loss, by_loop.loss, rtol=1e-5)
        for name, gradient in by_loop.by_name.items():
            difference = (by_func.by_name[name] - gradient).flatten(1).norm(dim=1)
            assert (difference <= 1e-5 * gradient.flatten(1).norm(dim=1)).all(), name
            assert (gradient.flatten(1).norm(dim=1) > 0).all(), name


def test_loop_only_is_what_vmap_says(one_family):
    """The refusal of Z-Image under func is needed: without it torch fails, without naming a cure."""
    tiny = one_family("z_image")
    found, parameters = tiny.loaded()
    refused = measure(found, parameters, Source(tiny.latents(), found.family, seed=0), "loop")
    object.__setattr__(refused, "engine", engine("func"))
    with pytest.raises(RuntimeError, match="vmap"):
        refused(NATIVE_ARM, SIGMA, [Sample("image 0", 0)])


def swept(tiny_family):
    """The Grams of one cell of a fresh probe, and what they were made of."""
    found, parameters = tiny_family.loaded()
    latents = tiny_family.latents()
    source = Source(latents, found.family, seed=0)
    sweep = Sweep(
        measure=measure(found, parameters, source, "loop" if found.family.loop_only else "func"),
        arms=(NATIVE_ARM, parse("demote:48")),
        sigmas=(SIGMA,),
        images=latents.names,
        draws=DRAWS,
        metrics={"raw": METRICS["raw"]},
        point=Point({name: p.detach().double().numpy() for name, p in parameters.items()}),
        block_of=lambda name: block_of(found.family, name),
        blocks=tuple(blocks(found.family, found.transformer)),
        group=2,
    )
    return sweep, cell(sweep, ROOM, SIGMA, lambda _: None), found, parameters, source


def backward(model, by_hand, parameters, source, arm, sample):
    """The gradient of one sample by a plain backward pass of a call by diffusers alone: name -> float64."""
    plan = arm.plan(SIGMA)
    x0 = clean_latent(plan, sample.image, source)
    noise = noise_for(plan, sample, x0.shape, source)
    sigma = torch.tensor([SIGMA])
    text = {key: value[None] for key, value in source.latents.condition(sample.image).items()}
    model.zero_grad()
    answer = by_hand(model, interpolate(x0[None], noise[None], sigma), sigma, text)
    ((answer[0] - (noise - x0)) ** 2).mean().backward()
    return {name: p.grad.double().numpy() for name, p in parameters.items()}


def test_the_gram_is_that_of_plain_backward_passes(tiny_family, by_hand):
    """Entry by entry, relative to sqrt(K_ii K_jj), in every block."""
    sweep, arrays, found, parameters, source = swept(tiny_family)
    for p in parameters.values():
        p.requires_grad_(True)
    rows = {}
    for arm in sweep.arms:
        for image in sweep.images:
            draws = [
                backward(found.transformer, by_hand, parameters, source, arm, Sample(image, d)) for d in range(DRAWS)
            ]
            rows[arm.text, image] = {name: np.mean([g[name] for g in draws], axis=0).ravel() for name in parameters}
    for at, block in enumerate(sweep.blocks):
        mean = np.stack(
            [
                np.concatenate([g for name, g in row.items() if block_of(found.family, name) == block])
                for row in rows.values()
            ]
        )
        expected = mean @ mean.T
        scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        gram = arrays["gram_image"][0, at].reshape(expected.shape)
        assert np.abs((gram - expected) / scale).max() <= 1e-5, block


def test_a_probe_repeats_to_the_byte(tiny_family):
    first, second = swept(tiny_family)[1], swept(tiny_family)[1]
    for name in ("gram_image", "gram_draw", "gram_cross", "loss"):
        assert first[name].tobytes() == second[name].tobytes(), name


def test_overflow_is_named_by_the_block_where_it_begins(tiny_family):
    """A weight of 1e38 in the deepest block's adapter: bfloat16 holds it, its products are infinite."""
    found, parameters = tiny_family.loaded("bf16")
    last = blocks(found.family, found.transformer)[-1]
    down = next(name for name in parameters if name.startswith(f"{last}.") and ".lora_A." in name)
    parameters[down].data.fill_(1e38)
    source = Source(tiny_family.latents(), found.family, seed=0, dtype=found.dtype)
    with pytest.raises(UsageError) as error:
        measure(found, parameters, source, "loop")(NATIVE_ARM, SIGMA, [Sample("image 1", 0)])
    assert f"loss not finite: arm native, sigma 0.6, image image 1 draw 0, first in block {last};" in str(error.value)
