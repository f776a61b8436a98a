"""Strict determinism: the switches, and a watch over them.

strict()            # before CUDA starts and before anything is compiled
with guarded():     # whoever would turn the switch off in here gets an error
    ...
    check()         # at each place that would otherwise believe in the switches
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from analysis.errors import Refused, UsageError

Switch = bool | int | str
CUBLAS_WORKSPACES = (":4096:8", ":16:8")  # what NVIDIA documents as deterministic; the first is the faster one

THREADS_OF_A_CORE = 16  # more would only wait for each other, and many more end the process

backends: Any = torch.backends  # torch's type stubs lack some of it

promised: dict[str, Switch] = {}  # the switches as strict() left them; empty: strict() was not called
attempts: list[str] = []  # to turn them off inside guarded(), also those whose error was swallowed


def switches() -> dict[str, Switch]:
    """Everything in this process that decides the bits of a step, as it is now."""
    return {
        "use_deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "use_deterministic_algorithms(warn_only)": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cuda.cudnn_sdp_enabled": torch.backends.cuda.cudnn_sdp_enabled(),
        "CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        **{name: part.fp32_precision for name, part in float32_parts().items()},
        "max_autotune": autotuning(),
        "threads": torch.get_num_threads(),
    }


def autotuning() -> bool:
    """Whether inductor may pick kernels by timing them, which differs from process to process.

    ``torch.compile(mode="max-autotune")`` does not show here; do not use it.
    """
    flags = ("max_autotune", "max_autotune_gemm", "max_autotune_pointwise")
    # Importing inductor takes seconds, and before that its flags can only come from the environment.
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is None:
        return any(os.environ.get(f"TORCHINDUCTOR_{flag.upper()}") == "1" for flag in flags)
    return any(getattr(inductor, flag) for flag in flags)


def strict(*, tf32: bool = False) -> None:
    """Sets every switch for bit-equal repeats and remembers them for ``check``.

    tf32: whether float32 products on CUDA may use TF32; either choice repeats, but they differ from each
    other. Refuses when it comes too late (CUDA runs without cuBLAS' workspace setting) or when someone
    asked for warn_only or autotuning, instead of overruling them in silence. Called again, it checks first.
    """
    if promised:
        check()
    if torch.is_deterministic_algorithms_warn_only_enabled():
        raise Refused(
            "use_deterministic_algorithms has warn_only=True, with which attention kernels go on racing; "
            "remove that call (or torch.use_deterministic_algorithms(False) first)"
        )
    if autotuning():
        raise Refused("max_autotune is on: kernels chosen by timing differ between processes; turn it off")
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in CUBLAS_WORKSPACES:
        if torch.cuda.is_initialized():
            raise Refused(
                f"CUDA started without CUBLAS_WORKSPACE_CONFIG={CUBLAS_WORKSPACES[0]}; "
                "set it in the shell, or call strict() before anything touches the GPU"
            )
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = CUBLAS_WORKSPACES[0]
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_cudnn_sdp(False)  # its attention ignores the first of these switches once it is chosen
    set_tf32(tf32)
    promised.clear()
    promised.update(switches())


def set_tf32(allowed: bool) -> None:
    """TF32 in float32 matrix products and convolutions on CUDA.

    By torch's older functions, which keep its newer settings in step; the other way round they do not, and
    inductor then fails when it reads them.
    """
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def float32_parts() -> dict[str, Any]:
    """Where torch keeps the precision of float32 products: "tf32", "bf16", or "ieee" or "none" for full."""
    return {
        "cuda.matmul.fp32_precision": backends.cuda.matmul,
        "cudnn.conv.fp32_precision": backends.cudnn.conv,
        "cudnn.rnn.fp32_precision": backends.cudnn.rnn,
        "mkldnn.matmul.fp32_precision": backends.mkldnn.matmul,
    }


def set_threads(threads: int) -> None:
    """Threads of one CPU operation. Their number decides how sums are split, so it is watched like a switch."""
    if threads < 1:
        raise UsageError(f"threads {threads}: takes 1 or more")
    most = THREADS_OF_A_CORE * (os.cpu_count() or 1)
    if threads > most:
        raise UsageError(f"threads {threads}: this machine takes up to {most}")
    torch.set_num_threads(threads)
    if promised:
        promised["threads"] = torch.get_num_threads()


def check() -> None:
    """Refuses if a switch is no longer as ``strict`` left it."""
    if not promised:
        raise Refused("strict determinism was never set; call train.determinism.strict() before the run")
    if attempts:
        raise Refused(f"{attempts[0]} was called under strict determinism; results since then are not covered")
    now = switches()
    for name, value in promised.items():
        if now[name] != value:
            raise Refused(
                f"{name} became {now[name]!r} after strict determinism had set {value!r}; "
                "find what changed it: results since then are not covered"
            )


@contextmanager
def guarded() -> Iterator[None]:
    """Within it, a call that would turn strict determinism off, or to warn_only, is refused where it stands.

    All of torch's ways to do so end in one function of its extension, which is watched here. The refusal is
    remembered for ``check``, in case the caller swallows it.
    """
    check()
    extension: Any = torch._C
    setter = extension._set_deterministic_algorithms

    def watched(mode: bool, *, warn_only: bool = False) -> None:
        if not mode or warn_only:
            attempts.append(f"use_deterministic_algorithms({mode}, warn_only={warn_only})")
            raise Refused(f"{attempts[-1]} under strict determinism; find that call and remove it")
        setter(mode, warn_only=warn_only)

    extension._set_deterministic_algorithms = watched
    try:
        yield
    finally:
        extension._set_deterministic_algorithms = setter
        attempts.clear()


@contextmanager
def strict_within(*, tf32: bool = False) -> Iterator[None]:
    """``strict`` for a block of code; the switches and the promise are put back after it."""
    before, promised_before = switches(), dict(promised)
    matmul_precision, cudnn_tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        strict(tf32=tf32)
        yield
    finally:
        torch.use_deterministic_algorithms(
            bool(before["use_deterministic_algorithms"]),
            warn_only=bool(before["use_deterministic_algorithms(warn_only)"]),
        )
        torch.backends.cudnn.deterministic = bool(before["cudnn.deterministic"])
        torch.backends.cudnn.benchmark = bool(before["cudnn.benchmark"])
        torch.backends.cuda.enable_cudnn_sdp(bool(before["cuda.cudnn_sdp_enabled"]))
        torch.set_float32_matmul_precision(matmul_precision)
        torch.backends.cudnn.allow_tf32 = cudnn_tf32
        for name, part in float32_parts().items():
            part.fp32_precision = before[name]
        torch.set_num_threads(int(before["threads"]))
        if before["CUBLAS_WORKSPACE_CONFIG"]:
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = str(before["CUBLAS_WORKSPACE_CONFIG"])
        else:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        promised.clear()
        promised.update(promised_before)
