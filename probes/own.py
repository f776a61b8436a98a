"""Probe a module, loss and arm of your own: the Python entry.

A worked example, which the tests run as it stands:

    import torch
    from torch.func import functional_call
    from analysis.safety import assess
    from probes import probe
    from train.crn import normal

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
    data = {f"x{i}": normal((16,), seed=1, purpose="data", index=(i,)) for i in range(24)}

    def loss(parameters, x0, noise, sigma):  # one sample -> one number
        answer = functional_call(net, parameters, ((1 - sigma) * x0 + sigma * noise,))
        return ((answer - (noise - x0)) ** 2).mean()

    def native(image, draw, sigma):  # what loss takes for one sample: the same draw in every arm
        return data[image], normal((16,), seed=0, purpose="noise", index=(image, draw)), torch.tensor(sigma)

    def halved(image, draw, sigma):
        x0, noise, sigma = native(image, draw, sigma)
        return x0 / 2, noise, sigma

    dataset = probe(net, loss, {"native": native, "halved": halved}, list(data), draws=4, sigmas=[0.3, 0.6, 0.9])
    print(assess(dataset, baseline="native", population="images", rule="relative", margin=0.2).verdict)
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from analysis.errors import UsageError
from analysis.schema import ARRAYS
from probes.gradients import Gradients
from probes.metrics import METRICS, Point
from probes.progress import counting
from probes.room import Room
from probes.sweep import Sweep, cell, empty
from train.batch import alike
from train.plan import Sample
from train.repeatable import check_repeatable

if TYPE_CHECKING:
    import xarray as xr

IN_MEMORY = Room(0, 0, 0, in_memory=True, cross=True, folder=Path())

#: (parameters by name, *inputs of one sample) -> loss, a scalar tensor.
Loss = Callable[..., Tensor]
#: (image, draw, sigma) -> the loss's inputs for that sample. Everything random in it must depend on these three alone.
Prepare = Callable[[str, int, float], tuple[Tensor, ...]]


@dataclass(frozen=True)
class OwnArm:
    """One arm of your own."""

    text: str
    prepare: Prepare

    def plan(self, sigma: float) -> str:
        return self.text


def probe(
    module: nn.Module,
    loss: Loss,
    arms: Mapping[str, Prepare],
    images: Sequence[str],
    *,
    draws: int,
    sigmas: Sequence[float],
    block_of: Callable[[str], str] | None = None,
    chunk: int = 24,
) -> "xr.Dataset":
    """Gram matrices of per-sample gradients of ``loss`` in ``module``'s trainable parameters, as a store holds them.

    arms: the first is the baseline; block_of: parameter name -> block (default: the module that owns it).
    Samples whose inputs have equal shapes are differentiated together, ``chunk`` at a time. Raises UsageError
    for gradients that are not finite, and Refused when the first gradients do not repeat to the bit.
    """
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    if not parameters:
        raise UsageError(f"{type(module).__name__}: no trainable parameter; set requires_grad on what you would train")
    owner = block_of or (lambda name: name.rpartition(".")[0] or name)
    sweep = Sweep(
        measure=lambda arm, sigma, samples: measure(loss, parameters, arm, sigma, samples, chunk),
        arms=tuple(OwnArm(name, prepare) for name, prepare in arms.items()),
        sigmas=tuple(sigmas),
        images=tuple(images),
        draws=draws,
        metrics={"raw": METRICS["raw"]},
        point=Point({name: p.double().cpu().numpy() for name, p in parameters.items()}),
        block_of=owner,
        blocks=tuple(dict.fromkeys(map(owner, parameters))),
        group=max(1, chunk // draws),
    )
    first = sweep.samples(sweep.images[:1])
    for arm in sweep.arms:
        check_repeatable(lambda arm=arm: sweep.measure(arm, sweep.sigmas[0], first).by_name)
    dataset = empty(sweep, cross=True)
    with counting(len(arms) * len(images) * draws * len(sigmas), 0) as progress:
        cells = [cell(sweep, IN_MEMORY, sigma, progress) for sigma in sweep.sigmas]
    for name in cells[0]:
        values = np.stack([np.asarray(found[name]) for found in cells], axis=ARRAYS[name].dims.index("sigma"))
        dataset[name] = (dataset[name].dims, values.astype(ARRAYS[name].dtype), dataset[name].attrs)
    dataset["done"] = ("sigma", np.ones(len(sigmas), bool), dataset["done"].attrs)
    return dataset


def measure(
    loss: Loss, parameters: Mapping[str, Tensor], arm: OwnArm, sigma: float, samples: Sequence[Sample], chunk: int
) -> Gradients:
    """Losses [B] and gradients by name [B, ...] of ``samples``; inputs of equal shapes go through together."""
    inputs = [arm.prepare(sample.image, sample.draw, sigma) for sample in samples]
    found: list[tuple[Tensor, dict[str, Tensor]]] = [(torch.empty(0), {})] * len(samples)
    for indices in alike((tuple(t.shape for t in given) for given in inputs), chunk):
        stacked = [torch.stack(tensors) for tensors in zip(*(inputs[i] for i in indices), strict=True)]
        by_name, losses = vmap(grad_and_value(loss), (None, *[0] * len(stacked)))(dict(parameters), *stacked)
        for row, i in enumerate(indices):
            found[i] = losses[row].detach(), {name: g[row].detach() for name, g in by_name.items()}
    by_parameter = {name: torch.stack([gradients[name] for _, gradients in found]) for name in parameters}
    return Gradients(torch.stack([value for value, _ in found]), by_parameter)
