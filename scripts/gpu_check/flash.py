"""The flash-attn package, where it is installed: its kernel repeated and compared, and twin runs with it."""

import steps as training
import torch
from race import REPEATS, same
from size import Size, drawn, not_run

from analysis.errors import UsageError
from analysis.run_folder import ADAPTER
from train import determinism
from train.attention import BACKENDS, Options, routed
from train.attention.backend import backend_named

ROUNDING = 2**-7  # of a result in bfloat16, relative to its norm


def missing(size: Size) -> str:
    """Why these parts cannot run."""
    if size.device != "cuda":
        return "its kernels run on cuda only"
    try:
        backend_named("flash")
    except UsageError as error:
        return str(error)
    return ""


def kernel(size: Size) -> dict[str, object]:
    """Bare and padded, deterministic: it must repeat, and agree with float32 written out."""
    if why := missing(size):
        return not_run(why)
    determinism.strict()
    batch, heads, tokens, width = size.attention
    tensors = [drawn((batch, heads, tokens, width), str(i)).to(size.device, torch.bfloat16) for i in range(4)]
    seen = torch.arange(tokens, device=size.device)[None, None, None] < tokens - 300
    found: dict[str, object] = {}
    good = True
    for name, options in (("bare", Options()), ("padded", Options(mask=seen))):
        answers = [differentiated("flash", tensors, options) for _ in range(REPEATS)]
        distinct = sum(not any(all(map(same, a, b)) for b in answers[:i]) for i, a in enumerate(answers))
        exact = differentiated("math", [x[:, :2].float() for x in tensors], options)
        error = max(float((a[:, :2].float() - b).norm() / b.norm()) for a, b in zip(answers[0], exact, strict=True))
        found |= {f"{name}, different results": distinct, f"{name}, error": round(error, 5)}
        good = good and distinct == 1 and error < ROUNDING
    return {"state": "passed" if good else "failed", "repeats": REPEATS, **found}


def differentiated(name: str, tensors: list[torch.Tensor], options: Options) -> list[torch.Tensor]:
    query, key, value = (x.clone().requires_grad_() for x in tensors[:3])
    with routed(name, deterministic=True):
        out = BACKENDS[name].attend(query, key, value, options, True)
        return [out.detach(), *torch.autograd.grad(out, (query, key, value), tensors[3])]


def steps(size: Size) -> dict[str, object]:
    """Two short deterministic runs, one after the other."""
    if why := missing(size):
        return not_run(why)
    how = {"deterministic": True, "attention": "flash", "steps": min(10, size.steps)}
    first, second = (training.taken(size, name, **how) for name in ("flash", "flash again"))
    differing = training.differing(*(size.folder / name / ADAPTER for name in ("flash", "flash again")))
    states = {first["state"], second["state"], "failed" if differing else "passed"}
    return {**first, "state": "failed" if "failed" in states else "passed", "differing tensors": differing}
