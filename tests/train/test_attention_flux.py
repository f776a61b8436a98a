"""The attention op inside a real model: diffusers' Flux, tiny, with a LoRA by peft."""

import pytest
import torch
from diffusers import FluxTransformer2DModel
from peft import LoraConfig
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap

from train.attention import routed
from train.crn import normal

SIDE = 14  # tokens: with 5 of text 201 keys, 4 key blocks
SAMPLES = 3
BLOCKS = ("transformer_blocks.0", "single_transformer_blocks.0")


@pytest.fixture(scope="module")
def flux() -> FluxTransformer2DModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=(4, 4, 8),
        )
        model.add_adapter(
            LoraConfig(
                r=4,
                target_modules=["to_q", "to_k", "to_v", "to_out.0", "proj_mlp", "proj_out"],
                init_lora_weights=False,
            )
        )
    return model


@pytest.fixture(scope="module")
def inputs() -> dict[str, Tensor]:
    rows = torch.arange(SIDE).float()
    shapes = {"hidden_states": (SIDE * SIDE, 4), "encoder_hidden_states": (5, 32), "pooled_projections": (32,)}
    return {
        **{name: normal((SAMPLES, *s), seed=0, purpose=name) for name, s in shapes.items()},
        "timestep": torch.tensor([0.2, 0.5, 0.9]),
        "img_ids": torch.cartesian_prod(torch.zeros(1), rows, rows),
        "txt_ids": torch.zeros(5, 3),
    }


TARGET = normal((SAMPLES, SIDE * SIDE, 4), seed=0, purpose="target")


def batched(model: FluxTransformer2DModel, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients of a plain batched step."""
    adapter = {name: p for name, p in model.named_parameters() if p.requires_grad}
    loss = (model(**inputs, return_dict=False)[0] - TARGET).square().mean()
    return loss.detach(), dict(zip(adapter, torch.autograd.grad(loss, tuple(adapter.values())), strict=True))


def per_sample(model: FluxTransformer2DModel, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Losses and gradients by vmap(grad(functional_call)), samples first."""
    adapter = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    shared = {name: inputs[name] for name in ("img_ids", "txt_ids")}
    mapped = {name: x for name, x in inputs.items() if name not in shared}

    def loss(adapter: dict[str, Tensor], sample: dict[str, Tensor], target: Tensor) -> Tensor:
        arguments = {name: x[None] for name, x in sample.items()} | shared | {"return_dict": False}
        return (functional_call(model, (adapter, frozen), (), arguments)[0][0] - target).square().mean()

    gradients, losses = vmap(grad_and_value(loss), (None, 0, 0))(adapter, mapped, TARGET)
    return losses, gradients


STEPS = [batched, per_sample]


def different(a: dict[str, Tensor], b: dict[str, Tensor]) -> set[str]:
    return {name for name in a if not torch.equal(a[name], b[name])}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("backend", ["math", "racing", "sdpa"])
def test_backends_agree(step, backend, flux, inputs):
    """Every LoRA gradient within 1e-5 of the unrouted model's batched step."""
    _, expected = batched(flux, inputs)
    with routed(backend, deterministic=False, model=flux) as calls:
        _, gradients = step(flux, inputs)
    assert calls.by_module() == {f"{block}.attn": 1 for block in BLOCKS}
    assert len(gradients) == len(expected) == 20
    for name, reference in expected.items():
        ours = gradients[name] if step is batched else gradients[name].mean(0)
        assert (ours - reference).norm() < 1e-5 * reference.norm(), name


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("backend", ["sdpa", "math"])
def test_deterministic_backends_repeat_to_the_bit(step, backend, flux, inputs):
    with routed(backend, deterministic=True):
        (loss, gradients), (loss_again, again) = step(flux, inputs), step(flux, inputs)
    assert torch.equal(loss, loss_again)
    assert different(gradients, again) == set()


@pytest.mark.parametrize("step", STEPS)
def test_racing_has_the_signature_of_a_gpu(step, flux, inputs):
    """Equal loss bits; in the last attention block the query side alone differs; upstream everything in the graph."""
    with routed("racing", deterministic=False):
        runs = [step(flux, inputs) for _ in range(6)]
    loss, gradients = runs[0]
    assert all(torch.equal(loss, other) for other, _ in runs[1:])
    moved = set().union(*(different(gradients, other) for _, other in runs[1:]))
    last = {name for name in moved if name.startswith(BLOCKS[1])}
    assert last == {name for name in gradients if name.startswith(f"{BLOCKS[1]}.attn.to_q.")}
    assert moved - last == {name for name in gradients if name.startswith(BLOCKS[0])}
    for name in moved:
        assert (gradients[name] - runs[1][1][name]).norm() < 1e-5 * gradients[name].norm()
