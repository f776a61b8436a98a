"""Seconds per gradient of both engines, and the peak of memory against its estimate."""

from time import perf_counter

import torch
from size import TIER, Size, peak_bytes

from probes.gradients import engine
from probes.measure import StepGradients
from probes.memory_of_sweep import activations
from train import determinism, model
from train.adapter import Lora, attach
from train.arms import NATIVE_ARM
from train.memory import size_of, weights_of
from train.plan import Sample
from train.step import Source

GROUP = 2  # samples that func takes at once
ROUNDS = 3
WITHIN = 1.5  # of the estimate


def timed(size: Size) -> dict[str, object]:
    """Under strict determinism."""
    determinism.strict()
    loaded = model.load(size.model(), "bf16")
    loaded.transformer.to(size.device)
    parameters = attach(loaded.transformer, Lora(16, 16, loaded.family.lora_targets), seed=0)
    source = Source(size.latents(), loaded.family, 0, loaded.dtype)
    assert source.latents.tier == TIER
    samples = [Sample("a", draw) for draw in range(GROUP)]
    found: dict[str, object] = {
        "parameters": f"{sum(p.numel() for p in loaded.transformer.parameters()) / 1e9:.2f} B",
        "tokens": (size.side // 2) ** 2 + size.text,
    }
    within = True
    for name in ("loop", "func"):
        measure = StepGradients(
            loaded.transformer,
            {key: p.detach() for key, p in parameters.items()},
            source, engine(name), GROUP, "sdpa", size.device,
        )  # fmt: skip
        told = activations(measure, NATIVE_ARM, 0.5, "a", GROUP)
        measure(NATIVE_ARM, 0.5, samples)
        if size.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        started = perf_counter()
        for _ in range(ROUNDS):
            measure(NATIVE_ARM, 0.5, samples)  # what it returns lies on the CPU, so the device is done
        found[f"{name}, seconds per gradient"] = round((perf_counter() - started) / ROUNDS / GROUP, 4)
        peak = peak_bytes(size.device)
        if told is not None:
            total = told + weights_of(loaded.transformer, measure.parameters) + size_of(parameters.values())
            found[f"{name}, GiB told"] = round(total / 2**30, 2)
            if peak is not None:
                found[f"{name}, GiB at most"] = round(peak / 2**30, 2)
                within = within and 1 / WITHIN < peak / total < WITHIN
    return {"state": "passed" if within else "failed", **found}
