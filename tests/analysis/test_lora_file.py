"""Reading one LoRA file: numbers, scales, and one line for whatever is no plain LoRA."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.dtypes import BITS, values
from analysis.errors import UsageError
from analysis.lora.file import FLOATS, read

RANK = 2
UP, DOWN = np.arange(6.0).reshape(3, RANK) / 4, np.arange(8.0).reshape(RANK, 4) / 8
Tensor = tuple[str, tuple[int, ...], bytes]


def f32(array: object) -> Tensor:
    found = np.asarray(array, "<f4")
    return "F32", found.shape, found.tobytes()


def lora(module: str = "blocks.0.to_q", up: object = UP, down: object = DOWN, **more: object) -> dict[str, Tensor]:
    """One module in diffusers' spelling without prefix; ``more`` by the end of a tensor's name."""
    tensors = {"lora_A.weight": down, "lora_B.weight": up, **more}
    return {f"{module}.{name}": f32(array) for name, array in tensors.items()}


def settings(**given: Any) -> dict[str, str]:
    return {"lora_adapter_metadata": json.dumps(given)}


@pytest.fixture
def write(safetensors_writer: Callable[..., Path]):
    def write(tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> Path:
        return safetensors_writer("a.safetensors", tensors, metadata)

    return write


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_format_reads_as_its_own_numbers(write, dtype: str) -> None:
    """Every bit pattern of 8 bits, or as many random ones, against the table of formats; NaN and infinity left out."""
    width = BITS[dtype] // 8
    bits = np.random.default_rng(0).integers(0, 256, (256, width), dtype=np.uint8)
    if width == 1:
        bits[:, 0] = np.arange(256)
    patterns = bits.view(f"<u{width}")[:, 0]
    expected = values(dtype, patterns)
    fine = np.isfinite(expected) & (np.abs(expected) < 1e30)
    size = int(fine.sum()) // 2 * 2
    patterns, expected = patterns[fine][:size], expected[fine][:size]
    tensors = {"m.lora_B.weight": (dtype, (size // 2, 2), patterns.tobytes()), "m.lora_A.weight": f32(DOWN)}
    module = read(write(tensors)).modules["m"]
    assert module.up.dtype == (np.float64 if dtype == "F64" else np.float32)
    assert (module.up.ravel() == expected).all()
    assert (module.down == DOWN).all()
    assert (module.rank, module.shape) == (2, (size // 2, 4))


@pytest.mark.parametrize(
    ("metadata", "scale"),
    [
        ({"r": RANK, "lora_alpha": 3}, 1.5),
        ({"transformer.r": RANK, "transformer.lora_alpha": 3, "text_encoder.lora_alpha": 50}, 1.5),
        ({"lora_alpha": 3}, 1.5),
        ({"r": RANK, "lora_alpha": 3, "use_rslora": True}, 3 / 2**0.5),
        ({"r": RANK, "lora_alpha": 9, "alpha_pattern": {"to_q": 3}}, 1.5),
        ({"r": RANK, "lora_alpha": 3, "alpha_pattern": {"o_q": 9, "0": 9, "blocks": 9}}, 1.5),
        ({"r": RANK, "lora_alpha": 9, "alpha_pattern": {r"blocks.\d+.to_[qk]": 3, "to_q": 5}}, 1.5),
        ({"r": 9, "lora_alpha": 3, "rank_pattern": {"to_q": RANK}}, 1.5),
        ({"r": RANK, "lora_alpha": 0}, 0.0),
        ({"r": RANK}, 1.0),
        ({"text_encoder.r": 9, "text_encoder.lora_alpha": 50}, 1.0),
    ],
)
def test_scales_of_the_header(write, metadata: dict[str, Any], scale: float) -> None:
    found = read(write(lora(), settings(**metadata)))
    assert found.modules["blocks.0.to_q"].scale == pytest.approx(scale, rel=1e-12)
    assert found.warnings == ()


def test_what_stands_nearest_to_the_module_gives_its_scale(write) -> None:
    """Alpha tensor, header, sidecar, rank; one file with all of them taken away one by one."""
    tensors, header = lora(alpha=5.0), settings(r=RANK, lora_alpha=3)
    sidecar = write(tensors, header).parent / "adapter_config.json"
    sidecar.write_text(json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": 7}))

    def found() -> tuple[float, str]:
        (module,) = read(sidecar.parent / "a.safetensors").modules.values()
        return module.scale, module.rule

    assert found() == (2.5, "alpha tensor")
    write(lora(), header)
    assert found() == (1.5, "header metadata")
    write(lora())
    assert found() == (3.5, "adapter_config.json")
    write({"m.lora_down.weight": f32(DOWN), "m.lora_up.weight": f32(UP)})
    assert found() == (1.0, "alpha = rank")  # kohya's files know no sidecar
    write(lora())
    sidecar.unlink()
    assert found() == (1.0, "alpha = rank")


def test_wrong_or_missing_ranks_are_told_and_change_nothing(write) -> None:
    path = write(lora(), settings(r=64, lora_alpha=3))
    assert read(path).modules["blocks.0.to_q"].scale == 1.5
    assert read(path).warnings == (
        f"{path}: header metadata gives blocks.0.to_q rank 64, its tensors have 2; the tensors' is used, scale 1.5",
    )
    path = write(lora("base_model.model.to_q"))
    assert read(path).warnings == (
        f"{path}: no alpha, and no adapter_config.json with one beside it; it is taken as the rank, scale 1",
    )
    path = write(lora() | lora("blocks.1.to_q", UP[:, :1], DOWN[:1]))
    assert read(path).warnings == (f"{path}: ranks 1, 2 and no alpha; each module's is taken as its rank, scale 1",)
    assert {module.scale for module in read(path).modules.values()} == {1.0}


@pytest.mark.parametrize("alpha", [("I64", (), (4).to_bytes(8, "little")), ("BF16", (1,), b"\x80\x40"), f32([[4.0]])])
def test_an_alpha_of_any_format_counts(write, alpha: Tensor) -> None:
    assert read(write(lora() | {"blocks.0.to_q.alpha": alpha})).modules["blocks.0.to_q"].scale == 2.0


def test_text_encoders_are_listed_and_not_read(write) -> None:
    other = {
        **lora("lora_te1_text_model_encoder_layers_0_mlp_fc1", np.full((3, RANK), np.nan)),
        "lora_te_x.hada_w1_a": f32(UP),
        **lora("text_encoder.text_model.layers.0.q_proj"),
    }
    found = read(write(lora("transformer.to_q") | other))
    assert list(found.modules) == ["to_q"]
    assert found.text_encoder == (
        "lora_te1_text_model_encoder_layers_0_mlp_fc1", "lora_te_x", "text_encoder.text_model.layers.0.q_proj",
    )  # fmt: skip


def test_modules_stand_in_the_order_of_the_file_without_prefixes(write) -> None:
    names = ["b.1.x", "a.0.x", "transformer_blocks.0.x"]
    prefixes = ["transformer.", "base_model.model.transformer.", "pipe.dit."]
    tensors = {k: v for prefix, name in zip(prefixes, names, strict=True) for k, v in lora(prefix + name).items()}
    assert list(read(write(tensors)).modules) == names


def test_a_folder_stands_for_the_adapter_in_it(safetensors_writer, tmp_path: Path) -> None:
    for name in ("adapter_model", "pytorch_lora_weights"):
        path = safetensors_writer(f"{name}/{name}.safetensors", lora())
        assert read(path.parent).path == path
    assert refusal(tmp_path) == (
        f"{tmp_path} is a folder with none of adapter_model.safetensors and pytorch_lora_weights.safetensors: "
        "give the file itself"
    )
    for name in ("adapter_model", "pytorch_lora_weights"):
        safetensors_writer(f"both/{name}.safetensors", lora())
    assert "with both of" in refusal(tmp_path / "both")
    assert "cannot be read" in refusal(tmp_path / "missing.safetensors")


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        read(path)
    message = str(error.value)
    assert "\n" not in message
    return message


PLAIN = "which cannot be compared here; give a plain LoRA"


@pytest.mark.parametrize(
    ("tensors", "line"),
    [
        ({"lora_unet_x.hada_w1_a": f32(UP)}, f"lora_unet_x.hada_w1_a is part of a LoHa, {PLAIN}"),
        ({"lora_unet_x.lokr_w1": f32(UP)}, f"lora_unet_x.lokr_w1 is part of a LoKr, {PLAIN}"),
        ({"x.lora_mid.weight": f32(UP)}, f"x.lora_mid.weight is the middle of a convolution's LoRA, {PLAIN}"),
        ({"x.diff": f32(UP)}, f"x.diff is a change of whole weights, not of two factors, {PLAIN}"),
        ({"x.diff_b": f32([1])}, f"x.diff_b is a change of whole weights, not of two factors, {PLAIN}"),
        (lora() | {"x.lora_B.bias": f32([1])}, f"x.lora_B.bias is a LoRA's change of a bias, {PLAIN}"),
        (lora() | {"x.lora_magnitude_vector": f32([1])},
         "x.lora_magnitude_vector is part of a DoRA, whose change needs the base model's weights, " + PLAIN),
        (lora() | {"x.dora_scale": f32([1])},
         "x.dora_scale is part of a DoRA, whose change needs the base model's weights, " + PLAIN),
        (lora(down=DOWN[..., None, None]),
         "blocks.0.to_q.lora_A.weight, [2, 4, 1, 1], is a convolution's; give a LoRA of linear layers"),
        (lora(up=UP[:, :, None]), "blocks.0.to_q.lora_B.weight, [3, 2, 1], is no matrix; give a LoRA of linear layers"),
        (lora(up=UP[:, :0], down=DOWN[:0]),
         "blocks.0.to_q.lora_B.weight, [3, 0], is no matrix; give a LoRA of linear layers"),
        ({"x.lora_up.weight": f32(UP)}, "x.lora_up.weight has no down beside it; give a complete file"),
        ({"x.lora_down.weight": f32(DOWN)}, "x.lora_down.weight has no up beside it; give a complete file"),
        (lora() | {"x.alpha": f32(1)}, "x.alpha has no up beside it; give a complete file"),
        (lora(down=DOWN[:1]),
         "blocks.0.to_q.lora_B.weight is [3, 2] and its down [1, 4], of different ranks; "
         "give a file that was written whole"),
        (lora(up=np.where(UP == 1, np.nan, UP)),
         "blocks.0.to_q.lora_B.weight holds NaN or infinity; give an adapter of a run that did not diverge"),
        (lora(down=np.where(DOWN == 0, -np.inf, DOWN)),
         "blocks.0.to_q.lora_A.weight holds NaN or infinity; give an adapter of a run that did not diverge"),
        (lora(alpha=np.nan), "blocks.0.to_q.alpha is nan; give a file with finite alphas"),
        (lora(alpha=[1, 2]),
         "blocks.0.to_q.alpha, F32 [2], is no single number; give a file with one alpha each"),
        (lora() | {"blocks.0.to_q.lora_B.weight": ("I8", (3, 2), bytes(6))},
         f"blocks.0.to_q.lora_B.weight has dtype I8; give a file of {', '.join(FLOATS)}"),
        (lora("a.b_c") | lora("a_b.c"), "modules a.b_c and a_b.c are one name without dots; keep one"),
        (lora("transformer.x") | lora("diffusion_model.x"),
         "transformer.x.lora_A.weight and diffusion_model.x.lora_A.weight are both down of one module; keep one"),
        (lora("x") | {"x.lora_down.weight": f32(DOWN)},
         "x.lora_A.weight and x.lora_down.weight are both down of one module; keep one"),
        (lora() | {"norm.weight": f32([1])}, "norm.weight is no part of a plain LoRA; give a file without it"),
        ({"blocks.0.to_q.weight": f32(UP), "proj.bias": f32([1])},
         "no LoRA among its 2 tensors, such as blocks.0.to_q.weight; give an adapter, not a model's weights"),
        (lora("x\ny"), "'x\\ny.lora_A.weight' is no name of a LoRA's tensor; give a file without it"),
        ({}, "no LoRA among its 0 tensors; give an adapter, not a model's weights"),
        ({"x.alpha": f32(1)}, "no LoRA among its 1 tensors; give an adapter, not a model's weights"),
        (lora("lora_te_x"), "a LoRA of text encoders alone (lora_te_x); give one of a transformer"),
    ],
)  # fmt: skip
def test_what_is_no_plain_lora_is_refused_by_name(write, tensors: dict[str, Tensor], line: str) -> None:
    path = write(tensors)
    assert refusal(path) == f"{path}: {line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{", "is no valid JSON (Expecting property name"),
        ("[" * 100_000, "is no valid JSON ("),
        ("3", "is no JSON object: mend or remove it"),
        ('{"lora_alpha": "16"}', "has lora_alpha = '16', which is no number: mend or remove it"),
        ('{"lora_alpha": NaN}', "has lora_alpha = nan, which is no number: mend or remove it"),
        ('{"lora_alpha": 1' + "0" * 400 + "}", "which is no number: mend or remove it"),
        ('{"lora_alpha": true}', "has lora_alpha = True, which is no number: mend or remove it"),
        ('{"lora_alpha": 1, "r": [8]}', "has r = [8], which is no number: mend or remove it"),
        ('{"lora_alpha": 1, "alpha_pattern": 3}', "has alpha_pattern 3, which names no modules: mend or remove it"),
        ('{"lora_alpha": 1, "alpha_pattern": {"x": null}}', "has alpha_pattern of 'x' = None, which is no number"),
        ('{"lora_alpha": 1, "rank_pattern": {"(": 8}}', "has '(', no regular expression ("),
        ('{"lora_alpha": 1, "use_dora": true}', "says use_dora: a DoRA's change needs the base model's weights;"),
        ('{"peft_type": "LOHA"}', "says peft_type 'LOHA': give a plain LoRA"),
    ],
)
def test_damaged_settings_are_one_line(write, text: str, line: str) -> None:
    path = write(lora(), {"lora_adapter_metadata": text})
    assert refusal(path).startswith(f"{path}: its lora_adapter_metadata ")
    assert line in refusal(path)
    sidecar = write(lora()).parent / "adapter_config.json"
    sidecar.write_text(text)
    assert refusal(path).startswith(f"{sidecar} ")
    assert line in refusal(path)


def test_a_sidecar_that_is_no_text_is_one_line(write) -> None:
    sidecar = write(lora()).parent / "adapter_config.json"
    sidecar.write_bytes(b"\xff\xfe")
    assert refusal(sidecar.parent / "a.safetensors").startswith(f"{sidecar} cannot be read (")
