"""Memory told from a model on the meta device, against what a real one of the same size keeps and allocates."""

import diffusers
import pytest
import torch

from train import memory
from train.adapter import Lora, attach
from train.execution import Execution, executed_as
from train.objective import flow_matching
from train.plan import NATIVE
from train.step import step_loss

SIDES = (24, 32)  # of the latent: four times and more the tokens of the other tests
DEPTH = {"z_image": {"n_layers": 3}, "flux": {"num_layers": 2, "num_single_layers": 3}}  # the others: four blocks


def given(tiny_family):
    """A step at half of the noise."""
    family = tiny_family.family()
    x, noise = torch.randn(2, 1, family.channels, *tiny_family.frames, *SIDES, generator=torch.Generator())
    condition = {
        name: torch.randn(1, *(40 if n is None else n for n in shape), generator=torch.Generator())
        for name, shape in family.condition_shapes.items()
    }
    return family, flow_matching(x, noise, torch.tensor([0.5]), condition)


def deeper(tiny_family):
    """A model of more blocks."""
    return tiny_family.build(**DEPTH.get(tiny_family.name.partition("-")[0], {"num_layers": 4}))


def with_adapter(model, family):
    """The model, frozen, and the parameters of a LoRA on it."""
    return model, attach(model.requires_grad_(False), Lora(4, 4, family.lora_targets), seed=0)


def kept_for_backward(model, loss_of):
    """Bytes of the storages that a forward keeps for its backward, besides the model, by torch's own hooks."""
    own = {x.untyped_storage().data_ptr() for x in memory.tensors_of(model)}
    kept = {}

    def pack(x):
        if x.untyped_storage().data_ptr() not in own:
            kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes(), x  # held, so that no place is reused
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss_of(model)
    return sum(size for size, _ in kept.values())


def test_a_meta_model_tells_what_a_real_one_takes(tiny_family):
    """Weights exactly; activations within 1.5 of what is kept for the backward; the peak exactly as allocated."""
    family, step = given(tiny_family)
    real, parameters = with_adapter(deeper(tiny_family), family)
    kind = getattr(diffusers, tiny_family.transformer_class)
    config = dict(real.config)
    with torch.device("meta"):
        meta, meta_parameters = with_adapter(kind(**config).eval(), family)

    assert memory.weights_of(meta, meta_parameters) == memory.weights_of(real, parameters)
    assert memory.weights_of(real, parameters) + memory.size_of(parameters.values()) == sum(
        x.numel() * x.element_size() for x in (*real.parameters(), *real.buffers())
    )

    def loss_of(model):
        return step_loss(model, family, step).sum()

    with executed_as(NATIVE, Execution()):
        told = memory.peak(meta, lambda model: loss_of(model).backward())
        kept = kept_for_backward(real, loss_of)
        with memory.Allocations() as allocated:
            loss_of(real).backward()
    assert told == pytest.approx(allocated.most, rel=0.05)
    activations = told - memory.size_of(parameters.values())
    assert activations / 1.5 < kept < activations * 1.5
    assert all(x.is_meta for x in meta.parameters())


def test_checkpointing_takes_less(tiny_family):
    family, step = given(tiny_family)
    model, _ = with_adapter(deeper(tiny_family), family)

    def told():
        with executed_as(NATIVE, Execution()):
            return memory.peak(model, lambda skeleton: step_loss(skeleton, family, step).sum().backward())

    without = told()
    model.enable_gradient_checkpointing()
    assert told() < 0.8 * without
    assert all(x.grad is None for x in model.parameters())


def test_attention_on_cuda_never_holds_all_scores(one_family):
    """The backend math does, in each of the four blocks, at least once: [heads, tokens, tokens] in float32."""
    tiny = one_family("qwenimage")
    family, step = given(tiny)
    model, _ = with_adapter(deeper(tiny), family)

    def told(execution):
        with executed_as(NATIVE, execution):
            return memory.peak(
                model, lambda m: step_loss(m, family, step).sum().backward(), tiled=execution.tiled(NATIVE)
            )

    written_out, tiled, on_cpu = (
        told(Execution(attention=name, device=device))
        for name, device in (("math", "cpu"), ("sdpa", "cuda"), ("sdpa", "cpu"))
    )
    tokens = SIDES[0] * SIDES[1] // 4 + 40
    assert written_out - tiled > 4 * 2 * tokens**2 * 4
    assert tiled == pytest.approx(on_cpu, rel=0.1)
    assert not Execution(attention="math", device="cuda").tiled(NATIVE)
