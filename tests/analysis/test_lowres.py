"""``analysis import-lowres``: a made-up record against plain loops, the published file against its printed tables."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis.cli import app
from analysis.entry import exit_code
from analysis.lowres import records, tables

ANCHORS = Path(__file__).parents[3] / "shared" / "anchors"
PUBLISHED = ANCHORS / "lowres_probe_e13.jsonl"
SIGMAS = [0.25, 0.5, 1.0]
ARMS = ("reenc", "896", "512")


def made_up() -> list[dict]:
    """Records of six images with a missing figure, a gap beyond the bound and a negative cosine."""
    generator = np.random.default_rng(0)

    def figures(lo: float, hi: float) -> list[float]:
        return generator.uniform(lo, hi, len(SIGMAS)).round(5).tolist()

    rows = []
    for image in range(6):
        row = {"image": image, "redundancy": 0.5, "tokens_native": 4000 + image, "sigma_centers": SIGMAS}
        row |= {"cos_floor": figures(0.3, 1.0), "gnorm_native": figures(0.5, 9.0)}
        for arm in ARMS:
            row |= {f"cos_{arm}": figures(0.1, 1.0), f"cos_self_{arm}": figures(0.3, 1.0)}
            row |= {f"gap_{arm}": figures(0.0, 0.5), f"debiased_gap_{arm}": figures(-0.2, 0.9)}
            if arm != "reenc":
                row[f"gnorm_{arm}"] = figures(0.5, 9.0)
        rows.append(row)
    rows[1]["debiased_gap_896"][0] = math.nan
    rows[2]["debiased_gap_512"][0], rows[2]["debiased_gap_reenc"][0] = 1.4, -0.2  # only their difference is beyond 1.5
    rows[3]["debiased_gap_896"][1], rows[3]["debiased_gap_reenc"][1] = 1.7, 0.4  # only the value is
    rows[4]["cos_self_512"][2] = -0.1
    rows[4]["cos_floor"][2] = -0.1  # a product of two negatives is no positive pair
    rows[5]["cos_self_896"][1] = None
    return rows


def written(tmp_path: Path, rows: list) -> Path:
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = exit_code(app, ["import-lowres", *map(str, arguments)], name="analysis")
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_both_tables_are_those_of_plain_loops(tmp_path: Path) -> None:
    rows = made_up()
    dataset = records.read(written(tmp_path, rows))
    gaps, ratios = tables.gap(dataset), tables.norm_ratio(dataset)
    assert gaps["arm"].values.tolist() == ratios["arm"].values.tolist() == ["896", "512"]
    for s, sigma in enumerate(SIGMAS):
        for arm in ("896", "512"):
            excess = [row[f"debiased_gap_{arm}"][s] - row["debiased_gap_reenc"][s] for row in rows]
            kept = [value for value in excess if abs(value) <= 1.5]
            cell = gaps.sel(sigma=sigma, arm=arm)
            assert (float(cell["gap"]), int(cell["images"])) == (pytest.approx(sum(kept) / len(kept)), len(kept))
            product, used = 1.0, 0
            for row in rows:
                own, floor = row[f"cos_self_{arm}"][s], row["cos_floor"][s]
                if own is not None and own > 0 and floor > 0:
                    product *= row[f"gnorm_{arm}"][s] / row["gnorm_native"][s] * math.sqrt(own / floor)
                    used += 1
            cell = ratios.sel(sigma=sigma, arm=arm)
            assert (float(cell["norm_ratio"]), int(cell["images"])) == (pytest.approx(product ** (1 / used)), used)
    assert gaps["images"].values.tolist() == [[5, 5], [6, 6], [6, 6]]
    assert ratios["images"].values.tolist() == [[6, 6], [5, 6], [5, 5]]


PRINTED_GAPS = {
    "896": ".033 .236 .296 .092 .017 .036 -.005 .019 .110",
    "768": ".064 .316 .266 .231 .112 .038 .053 .055 .200",
    "512": ".155 .571 .612 .669 .341 .278 .210 .215 .446",
}
PRINTED_RATIOS = {
    "896": "1.18 .92 .92 1.01 .94 .92 .78 .77 .52",
    "768": "1.42 .98 .91 .92 .98 .85 .67 .59 .46",
    "512": "1.80 1.34 1.01 1.10 .88 .63 .49 .34 .27",
}


@pytest.mark.skipif(not ANCHORS.is_dir(), reason="the published files are not at hand")
def test_the_published_tables_come_out_to_their_printed_digits(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, PUBLISHED, "--json")
    answer = json.loads(out)
    assert (code, answer["images"], len(answer["sigmas"])) == (0, 24, 15)
    expected = (
        ("gap", 3, (0.0125, 0.0875, 0.3, 0.4333, 0.5667, 0.7, 0.8333, 0.9375, 1.0), PRINTED_GAPS),
        ("norm_ratio", 2, (0.3, 0.4333, 0.5667, 0.7, 0.8333, 0.9375, 0.9625, 0.9875, 1.0), PRINTED_RATIOS),
    )
    for name, digits, sigmas, table in expected:
        cells = {(cell["sigma"], cell["arm"]): cell for cell in answer[name]}
        for arm, printed in table.items():
            got = [f"{cells[sigma, arm][name]:.{digits}f}".replace("0.", ".", 1) for sigma in sigmas]
            assert got == printed.split()
        assert all(cell["images"] + cell["dropped"] == 24 for cell in answer[name])


def test_text_shows_both_tables_what_was_dropped_and_what_they_are_not(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, written(tmp_path, made_up()))
    assert (code, err) == (0, "")
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 80
    dataset = records.read(tmp_path / "records.jsonl")
    shown = [f"{value:.3f} (-1)" for value in tables.gap(dataset)["gap"].values[0]]
    assert any(line.split() == ["0.25", *" ".join(shown).split()] for line in out.splitlines())
    flat = " ".join(out.split())
    assert "sigma 1 is pure noise: a cell of its own" in flat
    assert "A mean of per-image cosines is not the cosine of the mean gradients" in flat


def test_json_is_one_object_and_a_figure_of_no_image_is_null(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = made_up()
    for row in rows:
        row["debiased_gap_896"][0] = math.nan
    code, out, _ = run(capsys, written(tmp_path, rows), "--json")
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    cell = next(cell for cell in answer["gap"] if (cell["sigma"], cell["arm"]) == (0.25, "896"))
    assert (code, cell) == (0, {"sigma": 0.25, "arm": "896", "gap": None, "images": 0, "dropped": 6})
    code, out, _ = run(capsys, tmp_path / "records.jsonl")
    assert (code, "-   (-6)" in out.replace("- (-6)", "-   (-6)")) == (0, True)


def test_the_store_holds_every_figure_with_its_labels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows, out = made_up(), tmp_path / "records.zarr"
    assert run(capsys, written(tmp_path, rows), "--out", out)[0] == 0
    with xr.open_zarr(out, consolidated=False) as held:
        assert (held.attrs["schema"], held.attrs["source"]) == ("sigma-probes/published", "records.jsonl")
        cell = held.sel(sigma=0.5, arm="512", image="2")
        assert float(cell["debiased_gap"]) == rows[2]["debiased_gap_512"][1]
        assert float(cell["cosine"]) == rows[2]["cos_512"][1]
        assert float(cell["gradient_norm"]) == rows[2]["gnorm_512"][1]
        assert float(cell["cos_floor"]) == rows[2]["cos_floor"][1]
        assert int(cell["tokens_native"]) == 4002
        assert np.isnan(held["gradient_norm"].sel(arm="reenc")).all()
        assert all({"units", "long_name"} <= set(held[name].attrs) for name in held.variables)
    code, _, err = run(capsys, tmp_path / "records.jsonl", "--out", out)
    assert (code, err) == (2, f"analysis: {out} exists already: remove it, or write elsewhere\n")


def spoilt() -> dict[str, tuple[list, str]]:
    """Bad records, and what their one line says."""

    def changed(**fields: object) -> list:
        rows = made_up()
        rows[1] |= fields
        return [*rows[:2], "", *rows[2:]]

    def without(name: str) -> list:
        rows = made_up()
        del rows[1][name]
        return rows

    return {
        "empty": ([""], "holds no image; want one JSON object a line"),
        "text": (["{}x"], "line 1: not a JSON line"),
        "list": ([[1]], "line 1: a JSON list; want one object an image"),
        "no image": (without("image"), "line 2: field image is None"),
        "twice": (changed(image=0), "line 2: image 0 is there twice (line 1)"),
        "no sigma": (without("sigma_centers"), "line 2: field sigma_centers is missing"),
        "no floor": (without("cos_floor"), "line 2: field cos_floor is missing"),
        "no norm": (without("gnorm_512"), "line 2: field gnorm_512 is missing"),
        "no cosine": (without("cos_self_896"), "line 2: field cos_self_896 is missing"),
        "arms": (without("debiased_gap_896"), "line 2: arms reenc, 512; line 1 has reenc, 896, 512"),
        "no arm": ([{"image": 0, "sigma_centers": SIGMAS}], "line 1: no field debiased_gap_ARM"),
        "short": (changed(cos_896=[0.1, 0.2]), "line 2: cos_896 has 2 values; want 3, one for each of sigma_centers"),
        "grid": (changed(sigma_centers=[0.2, 0.5, 1.0]), "line 2: sigma_centers differ from those of line 1"),
        "order": (changed(sigma_centers=[0.5, 0.2, 1.0]), "want strictly increasing values in (0, 1]"),
        "range": (changed(sigma_centers=[0.5, 0.6, 1.5]), "want strictly increasing values in (0, 1]"),
        "cosine": (changed(cos_floor=[0.1, 1.2, 0.3]), "line 2: cos_floor holds a value beyond 1"),
        "norm": (changed(gnorm_896=[0.1, 0.0, 0.3]), "line 2: gnorm_896 holds a value that is not positive"),
        "word": (changed(cos_512=["a", 0.1, 0.2]), "line 2: field cos_512 is not a list of finite numbers"),
        "number": (changed(cos_512=0.5), "line 2: field cos_512 is not a list of finite numbers"),
        "infinite": (changed(gnorm_512=[math.inf, 0.1, 0.2]), "line 2: field gnorm_512 is not a list of finite"),
        "huge": (changed(gnorm_512=[10**400, 0.1, 0.2]), "line 2: field gnorm_512 is not a list of finite numbers"),
    }


@pytest.mark.parametrize("name", spoilt())
def test_bad_input_is_one_line_with_its_number(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    rows, message = spoilt()[name]
    code, out, err = run(capsys, written(tmp_path, rows), "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"analysis: {tmp_path / 'records.jsonl'} ")
    assert message in err


def test_no_file_and_no_control_are_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, tmp_path / "none.jsonl")
    assert (code, "cannot be read (FileNotFoundError)" in err) == (2, True)
    rows = [{key.replace("reenc", "copy"): value for key, value in row.items()} for row in made_up()]
    code, _, err = run(capsys, written(tmp_path, rows))
    assert (code, err.count("\n"), "control arm 'reenc' is not among the arms copy, 896, 512" in err) == (2, 1, True)
