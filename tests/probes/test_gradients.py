"""Both engines against each other, and the Grams of a sweep against backward passes written out here."""

import numpy as np
import pytest
import torch

from analysis.errors import UsageError
from probes.gradients import engine
from probes.measure import StepGradients
from probes.metrics import Point, metric
from probes.room import Room
from probes.sweep import Sweep, cell
from train import model
from train.arms import NATIVE_ARM, parse
from train.batch import batches, stacked
from train.families import block_of, blocks
from train.plan import Sample
from train.step import Source, step_input

SIGMA = 0.6
IMAGES, DRAWS = 3, 2


@pytest.fixture(scope="module")
def loaded():
    found = model.load("mini")
    parameters, lora, _ = model.adapter_of(found, None, rank=4, seed=0)
    source = Source(model.latents_of(found, None), found.family, seed=0)
    return found, {name: p.detach() for name, p in parameters.items()}, lora, source


def measure(loaded, name="func", chunk=24, attention="sdpa"):
    found, parameters, _, source = loaded
    return StepGradients(found.transformer, parameters, source, engine(name), chunk, attention)


def samples(loaded):
    return [Sample(image, draw) for image in loaded[3].latents.names[:IMAGES] for draw in range(DRAWS)]


def backward(loaded, arm, sample):
    """The gradient of one sample by a plain backward pass through the module itself: name -> float64."""
    found, parameters, _, source = loaded
    given = step_input(arm.plan(SIGMA), sample, SIGMA, source)
    own = {name: p for name, p in found.transformer.named_parameters() if name in parameters}
    answer = found.transformer(**found.family.arguments(given))[0]
    target = found.family.pack(given.target)
    loss = ((answer - target) ** 2).mean()
    return {name: g.double() for name, g in zip(own, torch.autograd.grad(loss, list(own.values())), strict=True)}


@pytest.mark.parametrize("arm", ["native", "demote:56"])
def test_engines_agree(loaded, arm):
    by_func, by_loop = (measure(loaded, name)(parse(arm), SIGMA, samples(loaded)) for name in ("func", "loop"))
    assert torch.allclose(by_func.loss, by_loop.loss, rtol=1e-5)
    for name, gradient in by_func.by_name.items():
        difference = (gradient - by_loop.by_name[name]).flatten(1).norm(dim=1)
        assert (difference <= 1e-5 * by_loop.by_name[name].flatten(1).norm(dim=1)).all(), name


@pytest.mark.parametrize("metric_name", ["raw", "weight"])
def test_the_gram_is_that_of_backward_passes_written_out(loaded, metric_name, tmp_path):
    """Entry by entry, relative to sqrt(K_ii K_jj), block by block; ``weight`` against dense d(dW)."""
    found, parameters, lora, source = loaded
    arms = (NATIVE_ARM, parse("demote:56"), parse("gain:1.05"))
    point = Point({name: p.double().numpy() for name, p in parameters.items()}, lora.scale)
    names = {block_of(found.family, name) for name in parameters}
    sweep = Sweep(
        measure=measure(loaded),
        arms=arms,
        sigmas=(SIGMA,),
        images=source.latents.names[:IMAGES],
        draws=DRAWS,
        metrics={metric_name: metric(metric_name)},
        point=point,
        block_of=lambda name: block_of(found.family, name),
        blocks=tuple(block for block in blocks(found.family, found.transformer) if block in names),
        group=2,
    )
    arrays = cell(sweep, Room(0, 0, 0, in_memory=True, cross=True, folder=tmp_path), SIGMA, lambda _: None)

    flat = {}
    for a, arm in enumerate(arms):
        for sample in samples(loaded):
            gradients = backward(loaded, arm, sample)
            for block in sweep.blocks:
                vectors = []
                for name in sorted(gradients):
                    if block_of(found.family, name) != block:
                        continue
                    if metric_name == "raw":
                        vectors.append(gradients[name].flatten())
                    elif ".lora_A." in name:
                        up = name.replace(".lora_A.", ".lora_B.")
                        dense = gradients[up] @ parameters[name].double() + parameters[up].double() @ gradients[name]
                        vectors.append(lora.scale * dense.flatten())
                vector = torch.cat(vectors).numpy() * (1.05 if a == 2 else 1.0)
                flat[a, sample.image, sample.draw, block] = vector
    images = sweep.images
    for at, block in enumerate(sweep.blocks):
        g = np.array([[[flat[a, i, d, block] for d in range(DRAWS)] for i in images] for a in range(3)])
        mean = g.mean(2).reshape(3 * IMAGES, -1)
        close(arrays["gram_image"][0, at].reshape(3 * IMAGES, -1), mean @ mean.T)
        for i in range(IMAGES):
            of_image = g[:, i].reshape(3 * DRAWS, -1)
            close(arrays["gram_draw"][0, at, i].reshape(3 * DRAWS, -1), of_image @ of_image.T)
        total = g.mean(2).sum(1)
        for i in range(IMAGES):
            expected = np.einsum("adk,bk->adb", g[:, i], total)
            scale = np.linalg.norm(g[:, i], axis=2)[:, :, None] * np.linalg.norm(total, axis=1)
            assert np.abs(arrays["gram_cross"][0, at, i] - expected).max() <= 1e-5 * scale.max()


def close(found, expected):
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    assert np.abs((found - expected) / scale).max() <= 1e-5


def test_arms_with_native_gradients_share_them(loaded):
    """Outside its window an arm is the native step; a gain is the native gradient times its factor."""
    windowed = measure(loaded)(parse("demote:56@0.7"), SIGMA, samples(loaded)[:1])
    native = measure(loaded)(NATIVE_ARM, SIGMA, samples(loaded)[:1])
    gained = measure(loaded)(parse("gain:1.05"), SIGMA, samples(loaded)[:1])
    for name, gradient in native.by_name.items():
        assert torch.equal(windowed.by_name[name], gradient)
        assert torch.equal(gained.by_name[name], gradient.double() * 1.05)


def test_jitter_is_small_seeded_and_different_for_every_sample(loaded):
    two = samples(loaded)[:2]
    native, jittered, again = (
        measure(loaded)(parse(arm), SIGMA, two) for arm in ("native", "jitter:1e-3", "jitter:1e-3")
    )
    name = max(native.by_name, key=lambda key: native.by_name[key].numel())
    relative = jittered.by_name[name] / native.by_name[name].double() - 1
    assert float(relative.std()) == pytest.approx(1e-3, rel=0.1)
    assert torch.equal(jittered.by_name[name], again.by_name[name])
    assert not torch.allclose(relative[0], relative[1], atol=1e-5)


@pytest.mark.parametrize("arm", ["attention:math", "dtype:bf16", "demote:56+rope:yarn", "attention:racing"])
def test_execution_and_positions_change_the_gradient_a_little(loaded, arm):
    treatment = parse(arm)
    native = measure(loaded)(parse("demote:56") if "demote" in arm else NATIVE_ARM, SIGMA, samples(loaded)[:2])
    treated = measure(loaded)(treatment, SIGMA, samples(loaded)[:2])
    flat = [torch.cat([g.flatten(1) for g in found.by_name.values()], 1).double() for found in (native, treated)]
    relative = float((flat[1] - flat[0]).norm() / flat[0].norm())
    low, high = {"dtype:bf16": (1e-4, 0.2), "demote:56+rope:yarn": (1e-5, 1.0)}.get(arm, (0, 1e-4))
    assert low <= relative <= high


def test_batches_hold_one_grid_and_keep_the_order(loaded):
    source = loaded[3]
    steps = [
        step_input(parse(arm).plan(SIGMA), s, SIGMA, source)
        for s in samples(loaded)[:2]
        for arm in ("native", "demote:56")
    ]
    assert list(batches(steps, 24)) == [[0, 2], [1, 3]]
    assert list(batches(steps, 1)) == [[0], [2], [1], [3]]
    joined = stacked([steps[0], steps[2]])
    assert joined.x_sigma.shape == (2, 3, 64, 64)
    assert torch.equal(joined.target[1:], steps[2].target)


def test_the_loop_engine_works_under_activation_checkpointing(loaded):
    found = loaded[0]
    plain = measure(loaded, "loop")(NATIVE_ARM, SIGMA, samples(loaded)[:1])
    found.transformer.train()
    found.transformer.enable_gradient_checkpointing()
    try:
        checkpointed = measure(loaded, "loop")(NATIVE_ARM, SIGMA, samples(loaded)[:1])
    finally:
        found.transformer.disable_gradient_checkpointing()
        found.transformer.eval()
    for name, gradient in plain.by_name.items():
        assert torch.allclose(checkpointed.by_name[name], gradient, rtol=1e-4, atol=1e-7)


def test_an_unknown_engine_is_named():
    with pytest.raises(UsageError, match="engine fast: unknown; take func or loop"):
        engine("fast")
