"""The trainer's own step as a system: native and treated gradients mixed by dose, then the optimiser's update.

Both gradients are those of ``train.training_step`` at the same weights, images, noise and sigma:
g = (1 - dose) g_native + dose g_treated. At dose 0 and 1 the run is one of ``train``, to the byte.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from probes.horizon.ladder import Branch
from probes.horizon.start import Start
from train import determinism
from train.adapter import plain_name
from train.arms import NATIVE_ARM
from train.crn import normal
from train.families import block_of
from train.job import Job
from train.state import put_back
from train.training_step import gradients, update

PURPOSE = "horizon jitter"


@dataclass(frozen=True)
class Training:
    """treated, native: two jobs that share model, adapter and optimiser; size: of a jitter, relative."""

    treated: Job
    native: Job
    start: Start
    size: float

    def begin(self, branch: Branch) -> None:
        put_back(self.native, self.start.kept, self.start.step)
        if not branch.jitter:
            return
        for name, p in self.native.parameters.items():
            index = (branch.jitter, plain_name(name))
            draw = normal(p.shape, seed=self.native.settings.seed, purpose=PURPOSE, index=index).double()
            p.data.copy_((p.detach().cpu().double() * (1 + self.size * draw)).to(p.dtype))

    def advance(self, step: int, branch: Branch) -> bool:
        part = bool(self.treated.schedule.treated[step])
        norm = self.mixed(step, branch.dose if part else 0.0)
        update(self.native, step, norm)
        determinism.check()
        return part

    def mixed(self, step: int, dose: float) -> float:
        """Leave the gradient of ``step`` in the parameters; its norm."""
        if dose in (0.0, 1.0):
            return gradients(self.treated if dose else self.native, step).norm
        gradients(self.native, step)
        native = {name: grad_of(p).clone() for name, p in self.native.parameters.items()}
        gradients(self.treated, step)
        for name, p in self.native.parameters.items():
            p.grad = (1 - dose) * native[name] + dose * grad_of(p)
        return float(get_total_norm([grad_of(p) for p in self.native.parameters.values()]))

    def position(self) -> dict[str, np.ndarray]:
        by_block: dict[str, list[np.ndarray]] = {}
        for name, p in self.native.parameters.items():
            values = p.detach().cpu().numpy().reshape(-1)
            by_block.setdefault(block_of(self.native.family, name), []).append(values)
        return {block: np.concatenate(values) for block, values in by_block.items()}


def training(job: Job, start: Start, seed: int, size: float) -> Training:
    """The system of one ``seed``, which decides images, noise and sigma of every step."""
    treated = of_seed(job, seed)
    return Training(treated, replace(treated, arm=NATIVE_ARM), start, size)


def of_seed(job: Job, seed: int) -> Job:
    """``job`` with other draws, and the same model, adapter and optimiser."""
    return replace(
        job,
        settings=replace(job.settings, seed=seed),
        source=replace(job.source, seed=seed),
        order=replace(job.order, seed=seed),
    )


def grad_of(p: Tensor) -> Tensor:
    """The gradient that a step left."""
    assert isinstance(p.grad, torch.Tensor)
    return p.grad
