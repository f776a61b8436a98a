"""``analysis endpoints`` end to end: run folders and LoRA files written here, their dense twins in float64."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from analysis.cli import app
from analysis.endpoints import store
from analysis.entry import exit_code

MODULES = ("transformer_blocks.0.attn.to_q", "transformer_blocks.10.ff.net.2", "transformer_blocks.2.attn.to_q")
OUT, IN, RANK, ALPHA = 6, 5, 2, 3.0
ENVIRONMENT = {"torch": "2.13.0", "cpu": "some", "switch threads": 1}
Factors = dict[str, tuple[np.ndarray, np.ndarray]]


def factors(seed: int, push: float = 0.0, way: int = 0) -> Factors:
    """up and down of every module; ``push`` moves them off those of ``seed``, the ``way`` that is given."""
    rng, other = np.random.default_rng(seed), np.random.default_rng([seed, way])
    return {
        name: tuple(
            (rng.standard_normal(shape) + push * other.standard_normal(shape)).astype(np.float32)
            for shape in ((OUT, RANK), (RANK, IN))
        )
        for name in MODULES
    }


def write_adapter(path: Path, values: Factors) -> None:
    tensors = {}
    for name, (up, down) in values.items():
        tensors[f"transformer.{name}.lora_A.weight"], tensors[f"transformer.{name}.lora_B.weight"] = down, up
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"transformer.r": RANK, "transformer.lora_alpha": ALPHA}
    save_file(tensors, path, {"lora_adapter_metadata": json.dumps(metadata)})


def write_run(path: Path, ends: Mapping[int, Factors], *, arm: str = "native", granted: bool | None = None,
              start: Factors | None = None, **about: object) -> Path:  # fmt: skip
    """A run's folder as the trainer leaves it. granted: None for a racing run."""
    deterministic = granted is not None
    environment = about.pop("environment", ENVIRONMENT)
    hashes = {"model": "m", "adapter": "fresh" if start is None else "a", "latents": "l"} | about.pop("hashes", {})  # pyright: ignore
    settings = {"arm": arm, "deterministic": deterministic, "steps": max(ends), "learning_rate": 0.1} | about
    path.mkdir(parents=True)
    content = {"command": "", "settings": settings, "code": {"version": "0"}, "hashes": hashes}
    (path / "run.json").write_text(json.dumps(content | {"environment": environment}))
    certificate = {"granted": bool(granted), "against": [], "steps": [1], "environment": environment}
    (path / "certificate.json").write_text(json.dumps(certificate))
    lines = [json.dumps({"treated": arm != "native" and step % 2 == 1}) for step in range(max(ends))]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    (path / "summary.json").write_text(json.dumps({"window": [0.5, 1.0]}))
    for step, values in ends.items():
        write_adapter(path / "checkpoints" / f"step-{step:06d}" / "adapter.safetensors", values)
    if start is not None:
        write_adapter(path / "start.safetensors", start)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = exit_code(app, ["endpoints", *map(str, arguments)], name="analysis")
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> dict:
    code, out, err = run(capsys, *arguments, "--json")
    assert code in (0, 3), err
    return json.loads(out)


def dense(values: Factors, start: Factors | None = None) -> np.ndarray:
    """All of dW in one vector, the slow way."""
    scale = ALPHA / RANK
    parts = []
    for name, (up, down) in values.items():
        delta = scale * up.astype(np.float64) @ down.astype(np.float64)
        if start is not None:
            delta -= scale * start[name][0].astype(np.float64) @ start[name][1].astype(np.float64)
        parts.append(delta.ravel())
    return np.concatenate(parts)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


@pytest.fixture
def racing(tmp_path: Path) -> Path:
    """Native with three twins, and a treated run that went elsewhere."""
    folder = tmp_path / "racing"
    for i, name in enumerate(("native", "native-twin1", "native-twin2", "native-twin3")):
        write_run(folder / name, {2: factors(0), 4: factors(0, 0.3 if i else 0.0, way=i)})
    write_run(folder / "s05", {2: factors(0), 4: factors(7)}, arm="demote:56@0.5")
    return folder


def test_a_folder_of_runs_is_compared_with_its_native_one(racing: Path, capsys: pytest.CaptureFixture[str]):
    found = answer(capsys, racing)["pairs"]
    assert [(pair["a"], pair["b"], pair["verdict"]) for pair in found] == [
        ("native", "native-twin1", "twins"),
        ("native", "native-twin2", "twins"),
        ("native", "native-twin3", "twins"),
        ("native", "s05", "separated"),
    ]
    last = found[-1]
    assert last["cosine"] == pytest.approx(cosine(dense(factors(0)), dense(factors(7))), abs=1e-12)
    assert last["norm_a"] == pytest.approx(np.linalg.norm(dense(factors(0))), rel=1e-12)
    assert list(last["blocks"]) == ["transformer_blocks.0", "transformer_blocks.2", "transformer_blocks.10"]
    assert last["floor"]["twins"] == 3
    assert last["dose_b"] == 0.5
    assert [at["step"] for at in last["growth"]] == [2, 4]
    assert last["growth"][0]["cosine"] == pytest.approx(1.0)


def test_an_unfinished_run_of_a_folder_is_left_out_with_a_warning(racing: Path, capsys: pytest.CaptureFixture[str]):
    shutil.rmtree(racing / "s05" / "checkpoints")
    code, out, err = run(capsys, racing)
    assert code == 0
    assert "s05" not in out
    assert "s05: no finished checkpoint yet; left out" in err


def test_the_text_has_a_floor_column_and_says_what_an_end_point_is(racing: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, racing, "--blocks")
    assert code == 0
    assert "never a ruler" in out
    assert "floor" in out
    assert "(3)" in next(line for line in out.splitlines() if "s05" in line)
    assert "transformer_blocks.10" in out
    assert "Growth of separation" in out


def test_a_store_says_the_same_as_the_runs(racing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    kept = tmp_path / "endpoints.zarr"
    once = answer(capsys, racing, "--out", kept)
    dataset = store.read(kept)
    assert dataset["displacement"].dims == ("step", "block", "arm", "arm_2")
    assert dataset["window_lo"].values.tolist() == [0.5] * 5
    assert dataset["treated_steps"].sel(arm="s05").values.tolist() == [1, 2]
    assert answer(capsys, kept) == once
    assert answer(capsys, racing, "--out", kept) == once  # in place of itself


def test_pictures_are_written_beside_the_store(racing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(capsys, racing, "--out", tmp_path / "e.zarr")[0] == 0
    for name in ("e-profile.png", "e-growth.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_certified_runs_are_identical_or_separated(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [
        write_run(tmp_path / "native", {4: factors(0)}, granted=True),
        write_run(tmp_path / "twin", {4: factors(0)}, granted=True),
        write_run(tmp_path / "s05", {4: factors(0, 1e-4)}, granted=True, arm="demote:56@0.5"),
    ]
    found = answer(capsys, *runs)["pairs"]
    assert [(pair["verdict"], pair["differing_tensors"]) for pair in found] == [("identical", 0), ("separated", 6)]


def test_a_certificate_of_another_environment_or_without_evidence_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    runs = [write_run(tmp_path / str(i), {4: factors(i)}, granted=True, arm=("native", "redraw")[i]) for i in range(2)]
    path = runs[1] / "certificate.json"
    good = json.loads(path.read_text())
    for bad in ({"environment": ENVIRONMENT | {"cpu": "other"}}, {"steps": []}, {"against": ["something"]}):
        path.write_text(json.dumps(good | bad))
        assert answer(capsys, *runs)["pairs"][0]["verdict"] == "no floor measured"
    path.write_text(json.dumps(good))
    assert answer(capsys, *runs)["pairs"][0]["verdict"] == "separated"


def test_a_displacement_counts_from_where_the_run_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    start = factors(3)
    ends = [factors(3, 0.3), {name: (u + np.float32(0.2), d) for name, (u, d) in factors(3).items()}]
    runs = [write_run(tmp_path / str(i), {4: end}, start=start) for i, end in enumerate(ends)]
    runs.append(write_run(tmp_path / "fresh", {4: factors(5)}))
    found = answer(capsys, *runs)["pairs"]
    vectors = [dense(ends[0], start), dense(ends[1], start), dense(factors(5))]
    assert found[0]["cosine"] == pytest.approx(cosine(vectors[0], vectors[1]), abs=1e-12)
    assert found[1]["cosine"] == pytest.approx(cosine(vectors[0], vectors[2]), abs=1e-12)


def test_no_floor_is_a_refusal_that_says_how_to_get_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [write_run(tmp_path / str(i), {4: factors(i)}, arm=("native", "redraw")[i]) for i in range(2)]
    code, out, _ = run(capsys, *runs)
    assert code == 3
    assert "no floor measured" in out
    assert "--deterministic" in out


def test_two_lora_files_of_other_spellings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_adapter(tmp_path / "a.safetensors", factors(0))
    tensors = {}
    for name, (up, down) in factors(1).items():
        kohya = f"lora_unet_{name.replace('.', '_')}"
        tensors |= {f"{kohya}.lora_up.weight": up, f"{kohya}.lora_down.weight": down}
        tensors[f"{kohya}.alpha"] = np.array(1.0, np.float32)
    save_file(tensors, tmp_path / "b.safetensors")
    found = answer(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    [pair] = found["pairs"]
    assert pair["cosine"] == pytest.approx(cosine(dense(factors(0)), dense(factors(1))), abs=1e-12)
    assert pair["norm_b"] == pytest.approx(np.linalg.norm(dense(factors(1))) / ALPHA, rel=1e-12)
    assert pair["verdict"] == "no floor measured"
    assert len(pair["blocks"]) == 3
    rules = found["scale_rules"]
    assert set(rules) == {"a.safetensors", "b.safetensors"}
    assert set(rules["a.safetensors"]) == set(MODULES)
    assert rules["a.safetensors"] != rules["b.safetensors"]


def test_modules_without_a_partner_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_adapter(tmp_path / "a.safetensors", factors(0))
    write_adapter(tmp_path / "b.safetensors", {name: factors(1)[name] for name in MODULES[:2]})
    code, _, err = run(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert code == 0
    assert f"a.safetensors: not compared, as not every file has them: {MODULES[2]}" in err


def test_equal_files_are_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("a", "b"):
        write_adapter(tmp_path / f"{name}.safetensors", factors(0))
    [pair] = answer(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors")["pairs"]
    assert pair["verdict"] == "identical"
    assert pair["cosine"] == 1.0


def test_another_environment_is_refused_unless_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    runs = [
        write_run(tmp_path / "here", {4: factors(0)}, granted=True),
        write_run(tmp_path / "there", {4: factors(1)}, granted=True, environment=ENVIRONMENT | {"cpu": "other"}),
    ]
    code, out, err = run(capsys, *runs)
    assert (code, out) == (3, "")
    assert 'there was made in another environment than here: cpu is "other"' in err
    code, out, _ = run(capsys, *runs, "--across-environments")
    assert code == 3
    assert "made in different environments" in out


def test_determinism_s_own_switches_are_no_other_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    switched = ENVIRONMENT | {"switch use_deterministic_algorithms": True, "switch cuda.cudnn_sdp_enabled": False}
    runs = [
        write_run(tmp_path / "racing", {4: factors(0)}),
        write_run(tmp_path / "fixed", {4: factors(1)}, granted=True, environment=switched),
    ]
    assert answer(capsys, *runs)["pairs"][0]["verdict"] == "no floor measured"


def test_equal_tensors_at_other_scales_are_not_identical(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tensors = {f"x.blocks.0.to_q.lora_{k}.weight": np.ones((2, 2), np.float32) for k in "AB"}
    for name, alpha in (("a", 4.0), ("b", 8.0)):
        metadata = {"lora_adapter_metadata": json.dumps({"r": 2, "lora_alpha": alpha})}
        save_file(tensors, tmp_path / f"{name}.safetensors", metadata)
    [pair] = answer(capsys, tmp_path / "a.safetensors", tmp_path / "b.safetensors")["pairs"]
    assert (pair["verdict"], pair["norm_b"]) == ("no floor measured", pytest.approx(2 * pair["norm_a"]))


def test_a_bare_file_gets_no_verdict_from_the_floor_of_runs(racing: Path, tmp_path: Path, capsys):
    write_adapter(tmp_path / "mine.safetensors", factors(7))
    found = answer(capsys, racing, tmp_path / "mine.safetensors", "--baseline", "native")["pairs"]
    assert found[-1]["b"] == "mine.safetensors"
    assert found[-1]["verdict"] == "no floor measured"


def test_a_copy_of_a_run_is_no_twin(racing: Path, capsys: pytest.CaptureFixture[str]):
    shutil.rmtree(racing / "native-twin3")
    shutil.copytree(racing / "native", racing / "native-copy")
    shutil.copytree(racing / "native-twin1", racing / "native-copy2")
    last = answer(capsys, racing)["pairs"][-1]
    assert (last["b"], last["floor"]["twins"], last["verdict"]) == ("s05", 2, "below one twin")


def test_fewer_steps_than_the_longest_run_are_told(racing: Path, capsys: pytest.CaptureFixture[str]):
    shutil.rmtree(racing / "s05" / "checkpoints" / "step-000004")
    code, out, err = run(capsys, racing)
    assert code == 0
    assert "after 2 steps" in out
    assert "compared after 2 steps, the last checkpoint that all runs have: s05 has 2" in err


@pytest.mark.parametrize("array", ["differing_tensors", "displacement", "command", "treatment", "arm"])
def test_a_store_that_lost_a_chunk_says_so(array: str, racing: Path, tmp_path: Path, capsys):
    assert run(capsys, racing, "--out", tmp_path / "e.zarr")[0] == 0
    for chunk in (tmp_path / "e.zarr" / array).glob("c*"):
        chunk.unlink()
    code, out, err = run(capsys, tmp_path / "e.zarr")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_published_displacements_stand_in_the_same_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    blocks = {str(i): 0.1 * i for i in (10, 2, 0)}
    content = {"arms": ["a", "b"], "pairs": {"a~b": {"cos_global": 0.25, "cos_per_block": blocks}}}
    (tmp_path / "d.json").write_text(json.dumps(content))
    code, out, _ = run(capsys, tmp_path / "d.json", "--blocks")
    assert code == 0
    assert "beside a\n" in out
    assert "0.2500" in out
    [pair] = answer(capsys, tmp_path / "d.json")["pairs"]
    assert list(pair["blocks"]) == ["0", "2", "10"]
    assert (pair["cosine"], pair["norm_a"], pair["verdict"]) == (0.25, None, "no floor measured")


ANCHORS = Path(__file__).parents[3] / "shared" / "anchors"


@pytest.mark.skipif(not ANCHORS.is_dir(), reason="the published files are not at hand")
def test_the_published_files_are_read(capsys: pytest.CaptureFixture[str]):
    placement = answer(capsys, ANCHORS / "displacement_placement.json")["pairs"]
    assert [round(pair["cosine"], 4) for pair in placement] == [0.1927, 0.906, 0.2807, 0.176, 0.3262, 0.2837]
    [twin] = answer(capsys, ANCHORS / "displacement_nondeterministic_twin.json")["pairs"]
    assert (twin["cosine"], len(twin["blocks"])) == (0.2645, 28)


def spoilt(tmp_path: Path) -> dict[str, tuple[list[Path], str]]:
    """Bad input by name: what is given, and what its one line says."""
    good = [write_run(tmp_path / name, {4: factors(0)}) for name in ("good", "other")]
    unfinished = write_run(tmp_path / "unfinished", {4: factors(0)})
    shutil.rmtree(unfinished / "checkpoints")
    model = write_run(tmp_path / "model", {4: factors(0)}, hashes={"model": "other"})
    steps = write_run(tmp_path / "steps", {5: factors(0)})
    started = write_run(tmp_path / "started", {4: factors(0)}, start=factors(1))
    (started / "start.safetensors").unlink()
    lines = write_run(tmp_path / "lines", {4: factors(0)})
    (lines / "metrics.jsonl").write_text("no json")
    certificate = write_run(tmp_path / "certificate", {4: factors(0)})
    (certificate / "certificate.json").write_text("[]")
    wide = tmp_path / "wide.safetensors"
    write_adapter(wide, {name: (up, np.ones((RANK, IN + 1), np.float32)) for name, (up, _) in factors(0).items()})
    plain = tmp_path / "plain.safetensors"
    write_adapter(plain, factors(0))
    dora, conv = tmp_path / "dora.safetensors", tmp_path / "conv.safetensors"
    stem = "transformer.transformer_blocks.0.attn.to_q"
    pair = {f"{stem}.lora_A.weight": np.ones((2, 5), np.float32), f"{stem}.lora_B.weight": np.ones((6, 2), np.float32)}
    save_file(pair | {f"{stem}.lora_magnitude_vector": np.ones(6, np.float32)}, dora)
    save_file({name: value[..., None, None] for name, value in pair.items()}, conv)
    published = tmp_path / "published.json"
    published.write_text(json.dumps({"pairs": {"a~b": {"cos_global": 2.0, "cos_per_block": {}}}}))
    empty = tmp_path / "empty"
    empty.mkdir()
    return {
        "one run": (good[:1], "one run alone has nothing to be compared with"),
        "twice": ([good[0], good[0]], "is given twice"),
        "unfinished": ([good[0], unfinished], "no finished checkpoint yet"),
        "models": ([good[0], model], "adapters of different base models"),
        "steps": ([good[0], steps], "no checkpoint that all runs have"),
        "start": ([good[0], started], "began from an adapter of which no start.safetensors is kept"),
        "metrics": ([good[0], lines], "not a run's lines of metrics"),
        "certificate": ([good[0], certificate], "not a JSON object"),
        "widths": ([plain, wide], "adapters of different base models"),
        "DoRA": ([plain, dora], "lora_magnitude_vector"),
        "conv": ([plain, conv], "transformer_blocks.0.attn.to_q"),
        "published": ([published], "cosine of a~b is 2.0"),
        "mixed": ([published, plain], "published files are shown by themselves"),
        "missing": ([good[0], tmp_path / "nowhere"], "no such file or folder"),
        "empty": ([good[0], empty], "empty"),
    }


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, (given, says) in spoilt(tmp_path).items():
        code, out, err = run(capsys, *given)
        assert (code, out) == (2, ""), (name, err)
        assert says in err, name
        assert err.count("\n") == 1, name


def test_what_stands_in_the_store_s_place_is_kept(racing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    place = tmp_path / "taken"
    place.mkdir()
    (place / "mine").touch()
    code, _, err = run(capsys, racing, "--out", place)
    assert code == 2
    assert "no end-point store" in err
    assert (place / "mine").exists()


def test_an_unknown_baseline_names_the_runs(racing: Path, capsys: pytest.CaptureFixture[str]):
    code, _, err = run(capsys, racing, "--baseline", "nativ")
    assert code == 2
    assert "they are native, native-twin1" in err
