"""One change of weights in every spelling that people have, and files that cannot be paired."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from analysis.errors import UsageError
from analysis.lora.file import LoraFile, LoraModule, read
from analysis.lora.pairing import paired

RANK, SCALE, D = 4, 1.5, 8
QKV = ("attn.to_q", "attn.to_k", "attn.to_v")
SHAPES = {
    **{f"transformer_blocks.0.{part}": (D, D) for part in (*QKV, "attn.to_out.0")},
    **{f"transformer_blocks.0.attn.add_{x}_proj": (D, D) for x in "qkv"},
    "transformer_blocks.0.ff.net.0.proj": (4 * D, D),
    "transformer_blocks.0.ff.net.2": (D, 4 * D),
    **{f"single_transformer_blocks.11.{part}": (D, D) for part in QKV},
    "single_transformer_blocks.11.proj_mlp": (4 * D, D),
    "single_transformer_blocks.11.proj_out": (D, 5 * D),
}
FUSED = {
    "double_blocks.0.img_attn.qkv": [f"transformer_blocks.0.{part}" for part in QKV],
    "double_blocks.0.img_attn.proj": ["transformer_blocks.0.attn.to_out.0"],
    "double_blocks.0.txt_attn.qkv": [f"transformer_blocks.0.attn.add_{x}_proj" for x in "qkv"],
    "double_blocks.0.img_mlp.0": ["transformer_blocks.0.ff.net.0.proj"],
    "double_blocks.0.img_mlp.2": ["transformer_blocks.0.ff.net.2"],
    "single_blocks.11.linear1": [f"single_transformer_blocks.11.{part}" for part in (*QKV, "proj_mlp")],
    "single_blocks.11.linear2": ["single_transformer_blocks.11.proj_out"],
}
Factors = Mapping[str, tuple[np.ndarray, np.ndarray]]


def factors(seed: int = 0) -> Factors:
    """up and down of every module, of numbers that an 8-bit float holds."""
    random = np.random.default_rng(seed)
    return {
        name: (random.integers(-6, 7, (height, RANK)) / 4, random.integers(-6, 7, (RANK, width)) / 4)
        for name, (height, width) in SHAPES.items()
    }


def fused(plain: Factors) -> Factors:
    """The same by Flux's original names; parts in blocks, rank 3 or 4 times as large."""
    found = {}
    for name, parts in FUSED.items():
        up = np.zeros((sum(plain[part][0].shape[0] for part in parts), RANK * len(parts)))
        start = 0
        for i, part in enumerate(parts):
            height = plain[part][0].shape[0]
            up[start : start + height, i * RANK : (i + 1) * RANK] = plain[part][0]
            start += height
        found[name] = up, np.concatenate([plain[part][1] for part in parts])
    return found


def scaled(plain: Factors, scale: float) -> Factors:
    return {name: (up * scale, down) for name, (up, down) in plain.items()}


def letters(plain: Factors, prefix: str = "", default: str = "") -> dict[str, np.ndarray]:
    """Spelled lora_A and lora_B."""
    return {
        f"{prefix}{name}.lora_{letter}{default}.weight": array
        for name, (up, down) in plain.items()
        for letter, array in (("A", down), ("B", up))
    }


def kohya(plain: Factors, alpha: float | None, *, prefix: str = "lora_unet_", dots: bool = False):
    """Spelled lora_down and lora_up; alpha for a module of rank RANK, and as many times as large as the rank is."""
    found: dict[str, np.ndarray] = {}
    for name, (up, down) in plain.items():
        base = prefix + (name if dots else name.replace(".", "_"))
        found |= {f"{base}.lora_down.weight": down, f"{base}.lora_up.weight": up}
        if alpha is not None:
            found[f"{base}.alpha"] = np.array(alpha * down.shape[0] / RANK)
    return found


def settings(prefix: str = "", **more: object) -> str:
    return json.dumps({f"{prefix}{key}": value for key, value in {"r": RANK, **more}.items()})


def encoded(dtype: str, array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor for the writer. Every format but F64 by its own definition, from exact numbers."""
    array = np.asarray(array, np.float64)
    if dtype in ("F64", "F32", "F16"):
        data = array.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype])
    elif dtype == "BF16":
        data = (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    else:
        mantissa, bias = (3, 7) if dtype == "F8_E4M3" else (2, 15)
        fraction, exponent = np.frexp(np.abs(array))  # array = fraction 2^exponent, fraction in [1/2, 1)
        steps = (2 * fraction - 1) * 2**mantissa
        bits = (exponent - 1 + bias) * 2**mantissa + steps
        data = np.where(array == 0, 0, bits + 128 * (array < 0)).astype(np.uint8)
    return dtype, array.shape, data.tobytes()


@pytest.fixture
def write(safetensors_writer: Callable[..., Path]):
    """``write("a", tensors, metadata, dtype)``: a file of that name below the test's folder."""

    def write(name: str, tensors: Mapping[str, np.ndarray], metadata=None, dtype: str = "F32") -> Path:
        return safetensors_writer(
            f"{name}.safetensors", {key: encoded(dtype, value) for key, value in tensors.items()}, metadata
        )

    return write


@pytest.fixture
def spellings(write, tmp_path: Path) -> dict[str, Path]:
    """``factors()`` times SCALE in every spelling."""
    plain, alpha = factors(), SCALE * RANK
    header = {"lora_adapter_metadata": settings("transformer.", lora_alpha=alpha)}
    patterned = settings("transformer.", lora_alpha=99, alpha_pattern={r"(single_)?transformer_blocks.\d+.*": alpha})
    folder = write("peft/adapter_model", letters(plain, "base_model.model.")).parent
    (folder / "adapter_config.json").write_text(settings(lora_alpha=SCALE * RANK**0.5, use_rslora=True))
    return {
        "diffusers": write("diffusers", letters(plain, "transformer."), header),
        "alpha pattern": write("pattern", letters(plain, "transformer."), {"lora_adapter_metadata": patterned}),
        "no prefix": write("none", letters(plain), {"lora_adapter_metadata": settings(lora_alpha=alpha)}),
        "no metadata": write("bare", letters(scaled(plain, SCALE), "transformer.")),
        "peft": folder,
        "kohya split": write("split", kohya(plain, alpha)),
        "kohya fused": write("fused", kohya(fused(plain), alpha)),
        "kohya alpha 0": write("zero", kohya(fused(scaled(plain, SCALE)), 0.0)),
        "kohya no alpha": write("absent", kohya(scaled(plain, SCALE), None)),
        "comfy": write("comfy", letters(fused(scaled(plain, SCALE)), "diffusion_model.")),
        "comfy, kohya's parts": write("cd", kohya(fused(plain), alpha, prefix="diffusion_model.", dots=True)),
        "letters with alpha": write(
            "la",
            letters(plain, "diffusion_model.") | {f"diffusion_model.{n}.alpha": np.array(alpha) for n in plain},
        ),
        "ai-toolkit": write("ai", letters(scaled(plain, SCALE), "transformer."), dtype="F16"),
        "diffsynth": write("ds", letters(scaled(plain, SCALE), "pipe.dit.", ".default")),
        "diffsynth, no prefix": write("dsn", letters(scaled(plain, SCALE), "", ".default")),
        "bf16": write("bf16", letters(scaled(plain, SCALE), "transformer."), dtype="BF16"),
        "float64": write("f64", letters(plain, "transformer."), header, dtype="F64"),
        "fp8": write("fp8", letters(plain, "transformer."), header, dtype="F8_E4M3"),
        "fp8, kohya fused": write("fp8f", kohya(fused(plain), alpha), dtype="F8_E4M3"),
    }


def test_one_change_of_weights_in_all_spellings(spellings: dict[str, Path]) -> None:
    found = paired([read(path) for path in spellings.values()])
    assert {module.name: module.files[0].shape for module in found.modules} == SHAPES
    assert set(found.alone) == {()}
    expected = {name: float(((SCALE * up @ down) ** 2).sum()) for name, (up, down) in factors().items()}
    for module in found.modules:
        products = module.inner_products()
        assert products == pytest.approx(np.full(products.shape, expected[module.name]), rel=1e-6), module.name
        assert module.block == ".".join(module.name.split(".")[:2])
    total = sum(module.inner_products() for module in found.modules)
    norms = np.sqrt(np.diagonal(total))
    assert norms == pytest.approx(np.full(len(norms), sum(expected.values()) ** 0.5), rel=1e-6)
    assert total / np.outer(norms, norms) == pytest.approx(np.ones(total.shape), abs=1e-6)


@pytest.mark.parametrize(
    ("spelling", "rule"),
    [
        ("diffusers", "header metadata"),
        ("peft", "adapter_config.json"),
        ("kohya fused", "alpha tensor"),
        ("kohya alpha 0", "alpha tensor of 0: alpha = rank"),
        ("kohya no alpha", "alpha = rank"),
        ("letters with alpha", "alpha tensor"),
        ("diffsynth", "DiffSynth: scale 1"),
    ],
)
def test_the_rule_is_told_for_each_module(spellings: dict[str, Path], spelling: str, rule: str) -> None:
    assert read(spellings[spelling]).rules == (rule,)


def test_two_fused_files_stay_fused(spellings: dict[str, Path]) -> None:
    found = paired([read(spellings["kohya fused"]), read(spellings["comfy"])])
    assert [module.name for module in found.modules] == [
        name if len(parts) > 1 else parts[0] for name, parts in FUSED.items()
    ]
    assert {module.block for module in found.modules} == {"transformer_blocks.0", "single_transformer_blocks.11"}
    total = sum(module.inner_products() for module in found.modules)
    expected = sum(float(((SCALE * up @ down) ** 2).sum()) for up, down in factors().values())
    assert total == pytest.approx(np.full((2, 2), expected), rel=1e-6)


def test_different_rules_are_warned_of(spellings: dict[str, Path]) -> None:
    a, b = spellings["diffusers"], spellings["kohya fused"]
    assert paired([read(a), read(b)]).warnings == (
        f"scales found by different rules, so norms may not compare: {a} by header metadata; {b} by alpha tensor",
    )
    assert paired([read(b), read(spellings["kohya split"])]).warnings == ()


def test_parts_of_a_fused_module_that_the_other_file_lacks(write) -> None:
    """The heights of parts follow from any one of them; zero rows are nobody's module, others stand alone."""
    plain = dict(factors())
    single = "single_transformer_blocks.11."
    plain[f"{single}attn.to_k"] = (np.zeros((D, RANK)), plain[f"{single}attn.to_k"][1])
    whole = read(write("fused", kohya(fused(plain), RANK)))
    for kept in ("attn.to_v", "proj_mlp"):
        own = {f"{single}{kept}": plain[f"{single}{kept}"]}
        part = read(write("part", letters(own, "transformer.")))
        found = paired([part, whole])
        assert [module.name for module in found.modules] == list(own)
        square = float(((own[f"{single}{kept}"][0] @ own[f"{single}{kept}"][1]) ** 2).sum())
        assert found.modules[0].inner_products() == pytest.approx(np.full((2, 2), square), rel=1e-6)
        alone = {name for name in found.alone[1] if name.startswith(single)}
        assert alone == {f"{single}{name}" for name in ("attn.to_q", "attn.to_v", "proj_mlp", "proj_out")} - set(own)
    assert "double_blocks.0.img_attn.qkv" in found.alone[1]


def test_modules_that_not_every_file_has_are_listed(write) -> None:
    plain = factors()
    names = list(plain)
    files = [
        read(write(str(i), letters({name: plain[name] for name in names if name != names[i]}, "transformer.")))
        for i in range(3)
    ]
    found = paired(files)
    assert [module.name for module in found.modules] == names[3:]
    assert found.alone == (
        (names[1], names[2]),
        (names[0], names[2]),
        (names[0], names[1]),
    )


def one(name: str, height: int = D, width: int = D, file: str = "a") -> LoraFile:
    """A file of one module."""
    module = LoraModule(name, np.ones((height, 2)), np.ones((2, width)), 1.0, "alpha = rank")
    return LoraFile(Path(file), {name: module})


@pytest.mark.parametrize(
    ("a", "b", "name", "block"),
    [
        ("blocks.7.self_attn.q", "blocks.7.attn1.to_q", "blocks.7.attn1.to_q", "blocks.7"),
        ("blocks_7_ffn_2", "blocks.7.ffn.net.2", "blocks.7.ffn.net.2", "blocks.7"),
        ("joint_blocks_3_x_block_mlp_fc1", "transformer_blocks.3.ff.net.0.proj",
         "transformer_blocks.3.ff.net.0.proj", "transformer_blocks.3"),
        ("blocks_5_cross_attn_output_proj", "transformer_blocks.5.attn2.to_out.0",
         "transformer_blocks.5.attn2.to_out.0", "transformer_blocks.5"),
        ("noise_refiner_1_attention_out", "noise_refiner.1.attention.to_out.0",
         "noise_refiner.1.attention.to_out.0", "noise_refiner.1"),
        ("single_blocks_4_linear1", "single_transformer_blocks.4.attn.to_qkv_mlp_proj",
         "single_transformer_blocks.4.attn.to_qkv_mlp_proj", "single_transformer_blocks.4"),
        # names no table has: a file's own dots, else the list of blocks in the folded name
        ("transformer_blocks_3_img_mlp_net_0_proj", "transformer_blocks.3.img_mlp.net.0.proj",
         "transformer_blocks.3.img_mlp.net.0.proj", "transformer_blocks.3"),
        ("odd_blocks_12_mix_in", "odd_blocks_12_mix_in", "odd_blocks_12_mix_in", "odd_blocks.12"),
        ("token_refiner_blocks_0_fc", "token_refiner_blocks_0_fc", "token_refiner_blocks_0_fc",
         "token_refiner_blocks.0"),
        ("embedder_linear_1", "embedder.linear_1", "embedder.linear_1", "other"),
        ("embedder_linear_1", "embedder_linear_1", "embedder_linear_1", "other"),
    ],
)  # fmt: skip
def test_names_and_blocks_are_diffusers_where_they_are_known(a: str, b: str, name: str, block: str) -> None:
    for first, second in ((a, b), (b, a)):
        (module,) = paired([one(first), one(second)]).modules
        assert (module.name, module.block) == (name, block)


def refusal(*files: LoraFile) -> str:
    with pytest.raises(UsageError) as error:
        paired(files)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_what_cannot_be_paired_is_one_line() -> None:
    assert refusal(one("blocks.0.a")) == "1 LoRA files given: give two or more to compare"
    assert refusal(one("blocks.0.a"), one("blocks.0.b", file="b")) == (
        "no module that all files have (a has blocks.0.a, b has blocks.0.b): "
        "give adapters of one model that train the same modules"
    )
    assert refusal(one("blocks.0.a"), one("blocks_0_a", width=9, file="b")) == (
        "blocks.0.a is [8, 8] in a and [8, 9] in b: adapters of different base models; give adapters of one"
    )
    assert refusal(one("double_blocks_0_img_attn_qkv", 25), one("transformer_blocks.0.attn.to_q", 8, file="b")) == (
        "a: double_blocks_0_img_attn_qkv has 25 outputs, which are not those of its parts in another file "
        "(transformer_blocks_0_attn_to_q 8): adapters of different base models; give adapters of one"
    )
    assert "different base models" in refusal(
        one("single_blocks_0_linear1", 24), one("single_transformer_blocks.0.attn.to_q", 8)
    )


def test_one_module_by_two_names_in_one_file_is_refused() -> None:
    def both(*names: str) -> LoraFile:
        return LoraFile(Path("a"), {name: one(name, 24).modules[name] for name in names})

    twice = both("blocks.0.self_attn.q", "blocks.0.attn1.to_q")
    assert refusal(twice, one("blocks.0.attn1.to_q")) == (
        "a: blocks.0.self_attn.q and blocks.0.attn1.to_q are one module by two names; keep one"
    )
    whole_and_part = both("double_blocks_0_img_attn_qkv", "transformer_blocks.0.attn.to_k")
    assert refusal(whole_and_part, one("transformer_blocks.0.attn.to_q")) == (
        "a: double_blocks_0_img_attn_qkv and transformer_blocks.0.attn.to_k, a part of it, are both there; keep one"
    )


def test_an_untrained_module_is_listed_and_has_no_norm(write) -> None:
    plain = factors()
    name = next(iter(plain))
    untrained = {name: (np.zeros((D, RANK)), plain[name][1]), "blocks.9.x": (np.zeros((D, RANK)), plain[name][1])}
    found = paired([read(write("a", letters(untrained))), read(write("b", letters(plain)))])
    assert found.alone[0] == ("blocks.9.x",)
    assert found.modules[0].inner_products()[0].tolist() == [0.0, 0.0]
