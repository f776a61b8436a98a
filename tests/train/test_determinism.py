"""Strict determinism: set, watched, refused where it comes too late; the repeated step; the environment."""

import getpass
import json
import os
import platform
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from analysis.errors import Refused, UsageError
from train import determinism
from train.determinism import check, set_threads, strict, strict_within, switches
from train.environment import environment


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = switches()
    yield
    assert switches() == before
    assert determinism.promised == {}


def test_strict_sets_every_switch():
    with strict_within():
        now = switches()
        assert now["use_deterministic_algorithms"] is True
        assert now["use_deterministic_algorithms(warn_only)"] is False
        assert now["cudnn.deterministic"] is True
        assert now["cudnn.benchmark"] is False
        assert now["cuda.cudnn_sdp_enabled"] is False
        assert now["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
        check()
        strict()
        check()


def test_tf32_is_a_recorded_choice():
    with strict_within(tf32=True):
        assert switches()["cuda.matmul.fp32_precision"] == switches()["cudnn.conv.fp32_precision"] == "tf32"
        assert torch.get_float32_matmul_precision() == "high"  # inductor reads it, and fails where the two disagree
        check()


def test_check_before_strict_is_refused():
    with pytest.raises(Refused, match=r"call train\.determinism\.strict"):
        check()


def flip_warn_only() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)


FLIPS = {
    "use_deterministic_algorithms became False": lambda: torch.use_deterministic_algorithms(False),
    "warn_only": flip_warn_only,
    "cudnn.deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", False),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cuda.cudnn_sdp_enabled": lambda: torch.backends.cuda.enable_cudnn_sdp(True),
    "CUBLAS_WORKSPACE_CONFIG": lambda: os.environ.pop("CUBLAS_WORKSPACE_CONFIG"),
    "cuda.matmul.fp32_precision": lambda: determinism.set_tf32(True),
    "mkldnn.matmul.fp32_precision": lambda: setattr(determinism.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "cudnn.conv.fp32_precision": lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize(("name", "flip"), FLIPS.items(), ids=FLIPS)
def test_a_later_flip_is_refused_by_name(name, flip):
    with strict_within():
        flip()
        with pytest.raises(Refused) as refusal:
            check()
        with pytest.raises(Refused):
            strict()
    assert name in str(refusal.value)


def test_autotuning_is_refused(monkeypatch):
    monkeypatch.delitem(determinism.sys.modules, "torch._inductor.config", raising=False)
    monkeypatch.setenv("TORCHINDUCTOR_MAX_AUTOTUNE", "1")
    with pytest.raises(Refused, match="max_autotune"), strict_within():
        pass
    monkeypatch.undo()


def test_autotuning_is_refused_where_inductor_is_loaded(monkeypatch):
    flags = {"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False}
    monkeypatch.setitem(determinism.sys.modules, "torch._inductor.config", SimpleNamespace(**flags))
    with strict_within():
        determinism.sys.modules["torch._inductor.config"].max_autotune_gemm = True
        with pytest.raises(Refused, match="max_autotune became True"):
            check()
        with pytest.raises(Refused, match="max_autotune"):
            strict()
    monkeypatch.undo()


def test_warn_only_is_refused():
    flip_warn_only()
    try:
        with pytest.raises(Refused, match="warn_only=True"), strict_within():
            pass
    finally:
        torch.use_deterministic_algorithms(False)


def test_too_late_for_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with pytest.raises(Refused, match="CUDA started without CUBLAS_WORKSPACE_CONFIG=:4096:8"):
        strict()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with strict_within():
        assert switches()["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    monkeypatch.undo()


def test_threads_are_set_and_promised():
    before = torch.get_num_threads()
    with strict_within():
        set_threads(before + 1)
        assert torch.get_num_threads() == before + 1
        check()
    assert torch.get_num_threads() == before
    with pytest.raises(UsageError, match="threads 0: takes 1 or more"):
        set_threads(0)


def test_environment_is_flat_json_without_names_of_places():
    found = environment()
    text = json.dumps(found)
    assert json.loads(text) == found
    assert {type(value) for value in found.values()} <= {str, int, float, bool}
    for name in (
        "python",
        "platform",
        "torch",
        "diffusers",
        "peft",
        "numpy",
        "cpu",
        "device",
        "switch threads",
        "switch cuda.matmul.fp32_precision",
    ):
        assert name in found, name
    assert found["torch"] == torch.__version__
    assert found["cpu"]
    for secret in (platform.node(), str(Path.home()), str(Path.cwd())):
        assert secret not in text
    assert getpass.getuser() not in found.values()


def test_environment_tells_the_strict_mode():
    with strict_within():
        assert environment()["switch use_deterministic_algorithms"] is True
    assert environment()["switch use_deterministic_algorithms"] is False
