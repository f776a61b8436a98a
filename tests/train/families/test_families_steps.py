"""Steps of the trainer where families differ from pixels: texts of other lengths, frames, and numbers that overflow."""

import pytest
import torch

from analysis.errors import UsageError
from probes.gradients import engine
from probes.measure import StepGradients
from train.arms import parse
from train.batch import batches
from train.coupling import area_matrix, white_area_matrix
from train.crn import normal
from train.families import blocks
from train.job import prepare
from train.overflow import in_backward, in_forward
from train.plan import Sample
from train.settings import Settings
from train.step import Source, step_input
from train.tensor_latents import TensorLatents
from train.training_step import advance, gradients


def with_texts(tiny, lengths):
    """Latents of random images with texts of ``lengths`` tokens."""
    family, g = tiny.family(), torch.Generator().manual_seed(0)
    names = [f"image {i}" for i in range(len(lengths))]
    texts = {
        name: {
            key: torch.randn([n if size is None else size for size in shape], generator=g)
            for key, shape in family.condition_shapes.items()
        }
        for name, n in zip(names, lengths, strict=True)
    }
    return TensorLatents(family, 64, {name: {64: torch.randn(4, 8, 12, generator=g)} for name in names}, texts)


def job_of(tiny, latents, **changes):
    settings = {"model": str(tiny.folder), "steps": 4, "rank": 2, "threads": 1, "learning_rate": 1e-2}
    return prepare(Settings(**settings | changes), latents)


@pytest.mark.parametrize("name", ["flux", "wan", "z_image"])
def test_texts_of_other_lengths_go_through_the_model_apart(one_family, name):
    tiny = one_family(name)
    job = job_of(tiny, with_texts(tiny, [3, 5, 3]), batch_size=3)
    advance(job, 0)  # away from up = 0
    plan, samples = job.plan(1), job.order.of(1)
    sigmas = job.sigmas(range(1, 2))[0].tolist()
    steps = [step_input(plan, s, sigma, job.source) for s, sigma in zip(samples, sigmas, strict=True)]
    assert sorted(map(len, batches(steps, 3))) == [1, 2]
    measure = StepGradients(
        job.transformer, {n: p.detach() for n, p in job.parameters.items()}, job.source, engine("loop"), 1, "sdpa"
    )
    alone = [measure(job.arm, sigma, [sample]) for sample, sigma in zip(samples, sigmas, strict=True)]
    outcome = gradients(job, 1)
    assert outcome.losses == pytest.approx([float(found.loss) for found in alone], rel=1e-5)
    for key, p in job.parameters.items():
        expected = torch.stack([found.by_name[key][0] for found in alone]).mean(0)
        assert (p.grad - expected).norm() <= 1e-5 * expected.norm(), key


def test_noise_of_a_clip_is_coupled_frame_by_frame(one_family):
    tiny = one_family("wan-clip")
    latents = tiny.latents()
    source, sample = Source(latents, tiny.family(), seed=5), Sample("image 1", 2)
    native = step_input(parse("native").plan(0.6), sample, 0.6, source)
    low = step_input(parse("demote:48").plan(0.6), sample, 0.6, source)
    resized = step_input(parse("demote-latent:48").plan(0.6), sample, 0.6, source)
    noise = normal((4, 2, 8, 12), seed=5, purpose="noise", index=("image 1", 2))
    assert torch.allclose(native.target[0], noise - latents.latent("image 1", 64), atol=1e-6)
    rows, columns = white_area_matrix(8, 6), white_area_matrix(12, 8)
    means = area_matrix(8, 6).float(), area_matrix(12, 8).float()
    for frame in range(2):
        small = (rows @ noise[:, frame].double() @ columns.T).float()
        assert torch.allclose(low.target[0, :, frame], small - latents.latent("image 1", 48)[:, frame], atol=1e-5)
        x0 = means[0] @ latents.latent("image 1", 64)[:, frame] @ means[1].T
        assert torch.allclose(resized.target[0, :, frame], small - x0, atol=1e-5)


def test_a_loss_that_overflows_is_named_by_its_block(one_family):
    tiny = one_family("flux")
    job = job_of(tiny, tiny.latents(), weights="bf16")
    names = blocks(job.family, job.transformer)
    down = next(n for n in job.parameters if n.startswith(f"{names[1]}.") and ".lora_A." in n)
    job.parameters[down].data.fill_(1e38)
    job.parameters[down.replace("lora_A", "lora_B")].data.fill_(1.0)
    before = {n: p.detach().clone() for n, p in job.parameters.items()}
    with pytest.raises(
        UsageError, match=rf"step 3: loss nan, first in block {names[1]} \(image image \d, sigma 0\.\d+\)"
    ):
        advance(job, 2)
    assert all(torch.equal(p, before[n]) for n, p in job.parameters.items())


def test_a_gradient_that_overflows_is_named_by_the_block_nearest_to_the_loss(one_family):
    tiny = one_family("flux")
    job = job_of(tiny, tiny.latents())
    names = blocks(job.family, job.transformer)
    for block in names[:2]:
        part = next(p for n, p in job.parameters.items() if n.startswith(f"{block}.") and ".lora_B." in n)
        part.register_hook(lambda gradient: gradient * torch.inf)
    with pytest.raises(UsageError, match=rf"step 1: gradient of norm \w+, first in block {names[1]} \(image"):
        advance(job, 0)
    assert in_backward(job.family, {"x_embedder.lora_A": torch.ones(2)}) == "in their sum"


def test_where_a_forward_pass_overflows(one_family):
    model, family = one_family("flux").build(), one_family("flux").family()

    def run(x):
        return model.single_transformer_blocks[0](
            hidden_states=x, encoder_hidden_states=torch.ones(1, 2, 32), temb=torch.ones(1, 32)
        )

    whole = torch.ones(1, 2, 32)
    assert in_forward(family, model, lambda: run(whole)) == "after the last block"
    assert in_forward(family, model, lambda: run(whole * torch.inf)) == "before block single_transformer_blocks.0"
    assert in_forward(family, model, lambda: None) == "before the first block"
    model.single_transformer_blocks[0].proj_out.weight.data.fill_(torch.inf)
    assert in_forward(family, model, lambda: run(whole)) == "first in block single_transformer_blocks.0"
