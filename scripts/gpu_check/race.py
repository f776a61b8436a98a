"""Whether torch's attention backward repeats: off, under warn_only, and under strict determinism."""

import warnings
from contextlib import nullcontext

import torch
from size import Size, drawn, not_run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from train import determinism

REPEATS = 20
KERNELS = {
    "torch's choice": None,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def seen(size: Size, mode: str) -> dict[str, object]:
    """How many different results each kernel gives in ``REPEATS``, with other work on the device."""
    if size.device != "cuda":
        return not_run("the race is one of CUDA's kernels")
    warnings.simplefilter("ignore")  # warn_only warns, as it says
    if mode == "strict":
        determinism.strict()
    elif mode == "warn_only":
        torch.use_deterministic_algorithms(True, warn_only=True)
    found: dict[str, int | str] = {
        name: different(size, kernel) for name, kernel in KERNELS.items() if mode != "strict" or name != "cudnn"
    }
    counts = [n for n in found.values() if isinstance(n, int)]
    passed = max(counts) == 1 if mode == "strict" else max(counts) > 1
    return {"state": "passed" if passed else "failed", "repeats": REPEATS, "different results": found}


def different(size: Size, kernel: SDPBackend | None) -> int | str:
    """Number of different (output, dQ, dK, dV), or why this kernel does not run."""
    tensors = [drawn(size.attention, str(i)).to(size.device, torch.bfloat16) for i in range(4)]
    other = torch.cuda.Stream()
    load = torch.ones(2048, 2048, device=size.device)
    answers: list[list[torch.Tensor]] = []
    try:
        for _ in range(REPEATS):
            with torch.cuda.stream(other):
                for _ in range(4):
                    load = torch.tanh(load @ load)
            query, key, value = (x.clone().requires_grad_() for x in tensors[:3])
            with sdpa_kernel(kernel) if kernel else nullcontext():
                out = scaled_dot_product_attention(query, key, value)
                found = [out, *torch.autograd.grad(out, (query, key, value), tensors[3])]
            if not any(all(map(same, found, seen)) for seen in answers):
                answers.append([x.detach() for x in found])
    except RuntimeError as error:
        return str(error).splitlines()[0]
    torch.cuda.synchronize()
    return len(answers)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal to the bit."""
    return torch.equal(a.view(torch.int16), b.view(torch.int16))
