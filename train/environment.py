"""Where a result was made: versions, devices and switches that can change its bits.

Nothing in it names a machine, a user or a path.
"""

import platform
import re
from importlib import metadata
from pathlib import Path

import torch

from train.determinism import switches

Value = str | int | float | bool
PACKAGES = ("torch", "diffusers", "peft", "numpy", "flash-attn")


def environment() -> dict[str, Value]:
    """The environment, flat and ready for JSON. Asks CUDA for its device: call it after ``strict``."""
    return {**software(), **processor(), **accelerator(), **{f"switch {k}": v for k, v in switches().items()}}


def software() -> dict[str, Value]:
    """Versions: Python, packages (those that are installed), operating system, libraries of torch."""
    versions: dict[str, Value] = {"python": platform.python_version(), "platform": operating_system()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    build = torch.__config__.show()
    for name, pattern in (("mkl", r"Math Kernel Library Version ([\d.]+)"), ("onednn", r"MKL-DNN v(\S+)")):
        if found := re.search(pattern, build):
            versions[name] = found[1]
    return versions


def operating_system() -> str:
    """For instance ``Linux x86_64 glibc 2.36``; no kernel release, which may carry a machine's name."""
    return " ".join(filter(None, (platform.system(), platform.machine(), *platform.libc_ver())))


def processor() -> dict[str, Value]:
    """CPU model, the instruction set torch's kernels use, and threads between operations."""
    return {
        "cpu": cpu_model(),
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "interop threads": torch.get_num_interop_threads(),
        "mkldnn enabled": bool(torch.backends.mkldnn.enabled),
    }


def cpu_model() -> str:
    """The processor's name, as far as the system tells it."""
    table = Path("/proc/cpuinfo")
    if table.is_file() and (found := re.search(r"^model name\s*:\s*(.+)$", table.read_text(), re.MULTILINE)):
        return found[1].strip()
    return platform.processor() or platform.machine()


def accelerator() -> dict[str, Value]:
    """The first CUDA device, or ``device: cpu``. Its number of multiprocessors decides how kernels split sums."""
    if not torch.cuda.is_available():
        return {"device": "cpu"}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    device: dict[str, Value] = {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "compute capability": f"{properties.major}.{properties.minor}",
        "cuda": torch.version.cuda or f"hip {torch.version.hip}",
        "cudnn": torch.backends.cudnn.version() or 0,
    }
    # torch does not tell the driver's version; the kernel module does, on Linux.
    module = Path("/proc/driver/nvidia/version")
    if module.is_file() and (found := re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", module.read_text())):
        device["driver"] = found[1]
    return device
