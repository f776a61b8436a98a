"""Taking a certificate: steps repeated under load and compared to the byte, attention counted by module.

Neither what a kernel's signature promises nor a switch that is on counts as evidence: a kernel may take
``deterministic=True`` and ignore it, and a module may call attention by another way.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from analysis.bytewise import Comparison, compare
from analysis.errors import Refused
from train import determinism
from train.attention import AttentionCalls, routed
from train.attention.calls import computed_by
from train.certificate import Certificate
from train.crn import normal
from train.divergence import diverging
from train.environment import environment
from train.job import Job
from train.raw_tensors import raw
from train.state import gradients_of, put_back, snapshot
from train.training_step import advance, gradients

REPEATS = 3  # of a step
KERNEL_REPEATS = 8
KERNEL_KEYS = 1024  # more than two key blocks of any kernel: two never race, as adding two numbers commutes


def certify(job: Job, done: int = 0) -> Certificate:
    """Evidence from the state of ``job`` after ``done`` steps, which is left as it was."""
    determinism.check()
    steps = chosen(job, done)
    kept = snapshot(job)
    against: list[str] = []
    tensors = 0
    try:
        with busy(job.execution.device):
            calls = count(job, steps[-1], against)
            if calls.total:
                tensors = sum(repeat(job, step, kept, done, against) for step in steps)
            kernels = {
                backend: kernel_repeats(backend, job.execution.device, against)
                for backend in sorted({computed_by(name) for name, _ in calls.by_backend()})
            }
    finally:
        put_back(job, kept, done)
        job.adamw.zero_grad()
    return Certificate(
        against=tuple(against),
        attention=calls.summary(),
        modules=tuple(calls.by_module()),
        steps=tuple(step + 1 for step in steps),
        repeats=REPEATS,
        tensors=tensors,
        longest_keys=calls.longest_keys,
        kernels=kernels,
        environment=environment(),
    )


def chosen(job: Job, done: int) -> list[int]:
    """The next step and the first one after it that each route of the arm treats."""
    first = min(done, job.settings.steps - 1)
    by_route = job.schedule.by_route(len(job.arm.routes))[:, first:]
    return sorted({first, *(first + int(treated.argmax()) for treated in by_route if treated.any())})


def repeat(job: Job, step: int, kept: dict[str, Tensor], done: int, against: list[str]) -> int:
    """Take ``step`` again and again from one state; returns how many tensors were compared each time."""
    runs: list[dict[str, Tensor]] = []
    for _ in range(REPEATS):
        put_back(job, kept, done)
        advance(job, step)
        runs.append(gradients_of(job) | snapshot(job))
    for other in runs[1:]:
        found = compare(raw(runs[0]), raw(other))
        if not found.identical:
            against.append(explained(job, step, found))
            break
    return len(runs[0])


def explained(job: Job, step: int, found: Comparison) -> str:
    """One line: what differed first, and the module where that begins."""
    first = found.differences[0].name
    what = f"step {step + 1} repeated differs in {len(found.differences)} of {found.tensors} tensors, first {first}"
    modules = diverging(job, step)
    if modules:
        return f"{what}; it begins in {', '.join(modules)}"
    where = "inside the compiled graph" if job.settings.compile else "at the optimiser or outside the model's modules"
    return f"{what}; eagerly every module repeats, so it begins {where}"


def count(job: Job, step: int, against: list[str]) -> AttentionCalls:
    """Attention calls of one eager step, with every one that was not promised or did not come through the op."""
    try:
        calls = gradients(job, step, eager=True, named=True).calls
    except Refused as error:
        against.append(str(error))
        return AttentionCalls()
    for backend, deterministic, module in sorted(calls.counts):
        if not deterministic:
            against.append(f"attention of {module or 'an unnamed module'} by {backend} was not deterministic")
    called = set(calls.by_module())
    against += [
        f"attention of {name} did not come through the one attention op, so nothing is known of it"
        for name in attention_modules(job.transformer)
        if not any(module == name or module.startswith(f"{name}.") for module in called)
    ]
    if not called:
        against.append("no attention call was seen")
    return calls


def attention_modules(model: nn.Module) -> list[str]:
    """Innermost modules whose class calls itself attention."""
    named = [name for name, module in model.named_modules() if "attention" in type(module).__name__.lower()]
    return [name for name in named if name and not any(other.startswith(f"{name}.") for other in named)]


def kernel_repeats(backend: str, device: str, against: list[str]) -> int:
    """Repeat one backward of ``backend`` alone, on sequences long enough to race; returns how often."""
    q, k, v, d_out = (
        normal((1, 2, KERNEL_KEYS, 64), seed=0, purpose="certify", index=(i,)).to(device) for i in range(4)
    )
    answers = []
    with routed(backend, deterministic=True):
        for _ in range(KERNEL_REPEATS):
            query, key, value = (x.clone().requires_grad_() for x in (q, k, v))
            out = torch.nn.functional.scaled_dot_product_attention(query, key, value)
            found = torch.autograd.grad(out, (query, key, value), d_out)
            answers.append(dict(zip(("out", "dQ", "dK", "dV"), (out, *found), strict=True)))
    differing = {d.name for other in answers[1:] for d in compare(raw(answers[0]), raw(other)).differences}
    if differing:
        against.append(
            f"attention backend {backend} took deterministic=True and does not repeat: {', '.join(sorted(differing))}"
        )
    return KERNEL_REPEATS


@contextmanager
def busy(device: str) -> Iterator[None]:
    """Other work on the device meanwhile: a race shows where workers are held up unevenly."""
    stop = threading.Event()

    def work() -> None:
        x = torch.ones(256, 256, device=device)
        while not stop.is_set():
            (x @ x).sum().item()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()
