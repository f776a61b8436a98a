"""The step: its gradient is the mean of the probe's per-sample gradients, whatever way it is batched."""

import numpy as np
import pytest
import torch

from analysis.errors import UsageError
from probes.gradients import engine
from probes.measure import StepGradients
from train.job import prepare
from train.optimizer import rate
from train.training_step import advance, gradients

ARMS = ["native", "demote:56", "repromote:48+shift:0.01", "demote:48+rope:pi", "dtype:bf16", "gain:1.5"]


def of_probe(job, step, weights=None):
    """The mean of single-sample gradients by the probe's loop, in float64, written out."""
    measure = StepGradients(
        job.transformer, {name: p.detach() for name, p in job.parameters.items()}, job.source, engine("loop"), 1, "sdpa"
    )
    sigmas = job.sigmas(range(step, step + 1))[0].tolist()
    total = {name: torch.zeros(p.shape, dtype=torch.float64) for name, p in job.parameters.items()}
    losses = []
    for i, (sample, sigma) in enumerate(zip(job.order.of(step), sigmas, strict=True)):
        found = measure(job.arm, sigma, [sample])
        losses.append(float(found.loss))
        for name, gradient in found.by_name.items():
            total[name] += (1.0 if weights is None else weights[i]) * gradient[0].double() / len(sigmas)
    return total, losses


@pytest.mark.parametrize("arm", ARMS)
def test_the_gradient_is_the_mean_of_the_probes_gradients(job_of, arm):
    job = job_of(arm=arm, batch_size=3)
    for _ in range(2):  # away from up = 0, where half of the gradient vanishes
        advance(job, 0)
    expected, losses = of_probe(job, 1)
    outcome = gradients(job, 1)
    # Under bf16 a batch's sum over samples is rounded to 8 bits, where the probe's sum of single samples is not.
    tolerance = 2**-8 if "bf16" in arm else 1e-5
    np.testing.assert_allclose(outcome.losses, losses, rtol=tolerance)
    for name, p in job.parameters.items():
        assert (p.grad.double() - expected[name]).norm() <= tolerance * expected[name].norm(), name
    square = sum(float(p.grad.double().square().sum()) for p in job.parameters.values())
    assert outcome.norm == pytest.approx(square**0.5, rel=1e-5)


def test_jitter_changes_each_element_of_the_steps_gradient_by_its_size(job_of):
    plain, jittered = job_of(), job_of(arm="jitter:1e-3")
    gradients(plain, 0)
    gradients(jittered, 0)
    ratios = torch.cat(
        [(a.grad / b.grad)[b.grad != 0].flatten() - 1 for a, b in
         zip(jittered.parameters.values(), plain.parameters.values(), strict=True)]
    )  # fmt: skip
    assert float(ratios.std()) == pytest.approx(1e-3, rel=0.1)


def test_accumulation_is_the_same_gradient_as_one_batch(job_of):
    whole, parts = job_of(batch_size=4), job_of(batch_size=2, accumulation=2)
    assert whole.sigmas(range(3)).tolist() == parts.sigmas(range(3)).tolist()
    assert whole.order.of(2) == parts.order.of(2)
    for job in (whole, parts):
        gradients(job, 0)
    for a, b in zip(whole.parameters.values(), parts.parameters.values(), strict=True):
        assert (a.grad - b.grad).norm() <= 1e-5 * a.grad.norm()


def test_weights_multiply_each_samples_loss(job_of):
    job = job_of(batch_size=3, weighting="min-snr:2")
    sigmas = job.sigmas(range(1))[0]
    expected, _ = of_probe(job, 0, weights=np.minimum((1 - sigmas) ** 2, 2 * sigmas**2))
    gradients(job, 0)
    for name, p in job.parameters.items():
        assert (p.grad.double() - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


@pytest.mark.parametrize("change", [{"activation_checkpointing": True}, {"adamw": "single"}, {"adamw": "fused"}])
def test_what_saves_memory_or_time_changes_no_result(job_of, change):
    plain, other = job_of(batch_size=2), job_of(batch_size=2, **change)
    for job in (plain, other):
        advance(job, 0)
        advance(job, 1)
    for a, b in zip(plain.parameters.values(), other.parameters.values(), strict=True):
        assert (a - b).norm() <= 1e-6 * a.norm()


def test_mixed_precision_keeps_the_adapter_in_float32(job_of):
    full, mixed = job_of(batch_size=2), job_of(batch_size=2, precision="bf16")
    for job in (full, mixed):
        gradients(job, 0)
    norms, distance = 0.0, 0.0
    for a, b in zip(full.parameters.values(), mixed.parameters.values(), strict=True):
        assert b.dtype == b.grad.dtype == torch.float32
        norms += float(a.grad.square().sum())
        distance += float((a.grad - b.grad).square().sum())
    assert 1e-4 < (distance / norms) ** 0.5 < 0.1


def test_the_gradient_is_clipped_to_its_norm(job_of):
    job = job_of(clip=1e-3)
    norm = advance(job, 0).norm
    assert norm > 1e-3
    assert sum(float(p.grad.square().sum()) for p in job.parameters.values()) ** 0.5 == pytest.approx(1e-3, rel=1e-3)


def test_no_arm_changes_sigma_images_or_noise(job_of):
    native, treated = (
        job_of(batch_size=2, sigma_sampler="flux"),
        job_of(batch_size=2, sigma_sampler="flux", arm="demote:48+shift:snr"),
    )
    assert native.sigmas(range(6)).tobytes() == treated.sigmas(range(6)).tobytes()
    assert [native.order.of(i) for i in range(6)] == [treated.order.of(i) for i in range(6)]


def test_an_epoch_shows_every_image_once_and_no_noise_twice(job_of):
    job = job_of(batch_size=1)
    samples = [job.order.of(step)[0] for step in range(15)]
    for epoch in range(3):
        assert sorted(s.image for s in samples[5 * epoch :][:5]) == ["0", "1", "2", "3", "4"]
    assert len({s.draw for s in samples}) == 15
    assert all(s.draw < 0 for s in samples)  # a probe's draws are 0, 1, ...
    assert [s.image for s in samples[:5]] != [s.image for s in samples[5:10]]


def test_a_step_that_is_not_finite_is_named_and_not_applied(job_of):
    job = job_of()
    with torch.no_grad():
        next(iter(job.parameters.values())).fill_(float("inf"))
    before = [p.detach().clone() for p in job.parameters.values()]
    with pytest.raises(UsageError, match=r"step 3: .*image \d, sigma 0\.\d+\); the step is not applied"):
        advance(job, 2)
    for a, b in zip(before, job.parameters.values(), strict=True):
        assert a.equal(b)


def test_the_learning_rate_rises_and_falls(settings_of):
    constant = settings_of(steps=10, warmup=4, learning_rate=1.0)
    assert [rate(step, constant) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0])
    linear = settings_of(steps=10, schedule="linear", learning_rate=1.0)
    assert [rate(step, linear) for step in range(10)] == pytest.approx([1 - step / 10 for step in range(10)])
    cosine = settings_of(steps=10, warmup=2, schedule="cosine", learning_rate=1.0)
    assert rate(2, cosine) == 1.0
    assert rate(6, cosine) == pytest.approx(0.5)


def test_missing_latents_for_a_tier_are_found_before_the_first_step(settings_of):
    for arm, message in (
        ("demote:50", "tier 50: not a multiple of the model's patch of 4; take 48 or 52"),
        ("demote:128", "tier 128: larger than the native tier of 64"),
        ("shift:0.5", "would become"),
    ):
        with pytest.raises(UsageError) as error:
            prepare(settings_of(arm=arm))
        assert message in str(error.value)
