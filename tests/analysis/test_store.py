"""A store gives back what was written, and every way it can be bad is one line."""

import json
import multiprocessing
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import schema, store
from analysis.errors import UsageError
from analysis.provenance import Code, Provenance
from analysis.synthetic import gram_arrays

ARMS, IMAGES, DRAWS, SIGMAS = ("native", "demote:56"), ("ä b", "c/d", "e"), 2, (0.25, 0.5, 1.0)
PROVENANCE = Provenance("probes grad", {"seed": 0}, Code("0.1.0"), {"model": "m"}, {"torch": "2"}, None)
OPEN_FAULTS = "zarr.storage._local._put"


def template(*, cross: bool = True) -> xr.Dataset:
    empty = schema.template(["raw", "weight"], SIGMAS, ["b0"], ARMS, IMAGES, range(DRAWS), cross=cross)
    empty["tokens"].values[:] = [[256], [196]]
    return empty


def cell(index: int, *, cross: bool = True) -> dict[str, np.ndarray | int]:
    shape = (2, 1, len(ARMS), len(IMAGES), DRAWS, 40)
    names = ("gram_image", "gram_draw", "gram_cross")
    arrays = dict(zip(names, gram_arrays(np.random.default_rng(index).standard_normal(shape)), strict=True))
    if not cross:
        del arrays["gram_cross"]
    loss = np.full((len(ARMS), len(IMAGES), DRAWS), 0.5 + index)
    return {**arrays, "loss": loss, "seconds": np.array([index, 1.0]), "images_used": len(IMAGES)}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "probe.zarr"
    store.create(path, template(), PROVENANCE)
    store.write_cell(path, 0, cell(0))
    store.write_cell(path, 1, cell(1))
    return path


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """A store of its own for the test, whose first two cells are done."""
    return shutil.copytree(original, tmp_path / "probe.zarr")


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("cross", [True, False])
def test_cells_come_back_as_written(tmp_path: Path, cross: bool) -> None:
    path = tmp_path / "probe.zarr"
    store.create(path, template(cross=cross), PROVENANCE)
    assert store.missing(path) == [0, 1, 2]
    for index in (2, 0):
        store.write_cell(path, index, cell(index, cross=cross))
    assert store.missing(path) == [1]
    opened = store.open_store(path)
    for index in (0, 2):
        for name, values in cell(index, cross=cross).items():
            np.testing.assert_array_equal(opened[name].isel(sigma=index).values, values)
    assert opened["done"].values.tolist() == [True, False, True]
    assert np.isnan(opened["gram_image"].isel(sigma=1).values).all()
    assert opened["tokens"].values.tolist() == [[256] * 3, [196] * 3]
    for name, labels in template(cross=cross).coords.items():
        assert opened[name].values.tolist() == labels.values.tolist()
        assert opened[name].attrs == labels.attrs
    assert float(opened["loss"].sel(sigma=1.0, arm="native", image="ä b", draw=1)) == 2.5
    assert store.provenance(path) == PROVENANCE
    assert [entry.name for entry in tmp_path.iterdir()] == ["probe.zarr"]


def test_plain_xarray_opens_a_store(path: Path) -> None:
    plain = xr.open_zarr(path, consolidated=False)
    np.testing.assert_array_equal(plain["gram_draw"].sel(sigma=0.5).values, cell(1)["gram_draw"])
    assert plain.sel(arm="demote:56")["loss"].sizes == {"sigma": 3, "image": 3, "draw": 2}
    assert json.loads(plain.attrs["settings"]) == {"seed": 0}


def test_arrays_are_read_when_used(path: Path) -> None:
    opened = store.open_store(path, contents=False)
    store.write_cell(path, 2, cell(2))
    np.testing.assert_array_equal(opened["gram_cross"].isel(sigma=2).values, cell(2)["gram_cross"])


def test_each_array_has_one_chunk_per_sigma(path: Path) -> None:
    chunks = [file for file in snapshot(path) if file.startswith("gram_draw/c.")]
    assert chunks == ["gram_draw/c.0.0.0.0.0.0.0.0", "gram_draw/c.0.1.0.0.0.0.0.0"]


def test_a_cell_written_again_is_not_done_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = snapshot(path)
    store.write_cell(path, 1, cell(1))
    assert snapshot(path) == before

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(OPEN_FAULTS, fail)
    with pytest.raises(RuntimeError, match="stopped"):
        store.write_cell(path, 1, cell(1))
    monkeypatch.undo()
    assert store.missing(path) == [1, 2]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"loss": None}, KeyError, "arrays"),
        ({"other": 1}, KeyError, "other"),
        ({"loss": np.zeros((2, 3, 3))}, ValueError, r"array loss of a cell has shape \[2, 3, 3\]; want \[2, 3, 2\]"),
        ({"loss": np.full((2, 3, 2), np.nan)}, UsageError, "array loss at sigma 0.5 is not finite"),
    ],
)
def test_a_bad_cell_touches_nothing(path: Path, change: dict, error: type, message: str) -> None:
    before = snapshot(path)
    arrays = {name: values for name, values in {**cell(1), **change}.items() if values is not None}
    with pytest.raises(error, match=message):
        store.write_cell(path, 1, arrays)
    with pytest.raises(ValueError, match="index of a cell is 3; want 0 to 2"):
        store.write_cell(path, 3, cell(1))
    assert snapshot(path) == before


def test_create_refuses_what_is_there(path: Path, tmp_path: Path) -> None:
    before = snapshot(path)
    with pytest.raises(UsageError, match="exists already"):
        store.create(path, template(), PROVENANCE)
    assert snapshot(path) == before
    if Path("/proc").is_dir():
        with pytest.raises(UsageError, match="/proc takes no files: choose another place"), store.lock(Path("/proc/x")):
            pass
    with pytest.raises(UsageError, match=r"no folder .*nowhere to write probe.zarr in"):
        store.create(tmp_path / "nowhere" / "probe.zarr", template(), PROVENANCE)


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".probe.zarr.partial" / "gram_image").mkdir(parents=True)  # from a creation that was killed

    def no_rename(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", no_rename)
    with pytest.raises(UsageError, match=r"no space left to write .*probe.zarr"):
        store.create(tmp_path / "probe.zarr", template(), PROVENANCE)
    assert list(tmp_path.iterdir()) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda p: flip(p / "gram_draw/c.0.1.0.0.0.0.0.0"), "array gram_draw at sigma 0.5 cannot be read"),
        (lambda p: (p / "loss/c.1.0.0.0").write_bytes(b""), "array loss at sigma 0.5 cannot be read"),
        (lambda p: (p / "gram_image/c.0.1.0.0.0.0.0").unlink(), "array gram_image at sigma 0.5 is not finite"),
        (lambda p: (p / "done/c.0").write_bytes(b"x"), "array done cannot be read"),
        (lambda p: shutil.rmtree(p / "loss"), "array loss is missing"),
        (lambda p: (p / "loss/zarr.json").write_text("{"), "damaged store"),
        (lambda p: (p / "arm/c.0").write_bytes(b"x"), "damaged store|cannot be read"),
        (lambda p: (p / "zarr.json").write_text("{"), "not a probe store: its zarr.json cannot be read"),
        (lambda p: (p / "zarr.json").write_text("[]"), "not a probe store: its zarr.json cannot be read"),
        (lambda p: (p / "zarr.json").write_text('{"attributes": {}}'), "not a probe store: attribute schema is None"),
        (lambda p: (p / "zarr.json").unlink(), "is not a store: want a folder that probes grad made"),
        (shutil.rmtree, "is not a store: want a folder that probes grad made"),
        (lambda p: (shutil.rmtree(p), p.write_text("text")), "is not a store: want a folder that probes grad made"),
    ],
)
def test_a_damaged_or_foreign_store_is_one_line(path: Path, harm, message: str) -> None:
    harm(path)
    with pytest.raises(UsageError, match=message) as caught:
        store.open_store(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_cell_can_be_made_anew_as_the_message_says(path: Path) -> None:
    before = snapshot(path)
    flip(path / "gram_draw/c.0.1.0.0.0.0.0.0")
    with pytest.raises(UsageError, match=f"remove {path}/done/c.1 and run the sweep again"):
        store.open_store(path)
    (path / "done/c.1").unlink()
    assert store.missing(path) == [1, 2]
    store.write_cell(path, 1, cell(1))
    assert snapshot(path) == before
    store.open_store(path)


def test_unreadable_provenance_is_one_line(path: Path) -> None:
    meta = json.loads((path / "zarr.json").read_text())
    del meta["attributes"]["settings"]
    (path / "zarr.json").write_text(json.dumps(meta))
    with pytest.raises(UsageError, match="no readable provenance"):
        store.provenance(path)


@pytest.mark.parametrize("write", [1, 2, 3, 4])
def test_a_full_disk_keeps_what_was_complete(path: Path, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    from zarr.storage import _local

    plain, calls = _local._put, []

    def full(*arguments, **keywords):
        calls.append(arguments)
        if len(calls) >= write:
            raise OSError(28, "No space left on device")
        return plain(*arguments, **keywords)

    before = snapshot(path)
    monkeypatch.setattr(OPEN_FAULTS, full)
    with pytest.raises(UsageError, match=r"no space left to write .*what was complete is kept") as caught:
        store.write_cell(path, 2, cell(2))
    monkeypatch.undo()
    assert "\n" not in str(caught.value)
    assert store.missing(path) == [2]
    assert before.items() <= snapshot(path).items()
    store.write_cell(path, 2, cell(2))
    assert store.missing(path) == []
    store.open_store(path)


def test_a_write_that_the_kernel_cuts_short_keeps_what_was_complete(path: Path) -> None:
    before = snapshot(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300, hard))
    try:
        with pytest.raises(UsageError, match="no space left to write"):
            store.write_cell(path, 2, cell(2))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.missing(path) == [2]
    assert before.items() <= snapshot(path).items()


def hold(path: Path, started, stop) -> None:
    with store.lock(path):
        started.set()
        stop.wait(60)


def test_a_second_writer_is_refused(path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started, stop = context.Event(), context.Event()
    writer = context.Process(target=hold, args=(path, started, stop))
    writer.start()
    assert started.wait(60)
    try:
        with pytest.raises(UsageError, match="is being written by another process"):
            store.write_cell(path, 2, cell(2))
        store.open_store(path)
        with store.lock(path.with_name("other.zarr")):
            pass
    finally:
        stop.set()
        writer.join(60)
    store.write_cell(path, 2, cell(2))


def test_a_lock_may_be_asked_for_twice_and_tidies_up(path: Path) -> None:
    stale = path / "gram_draw/c.0.2.0.0.0.0.0.0.123.partial"
    stale.write_bytes(b"half")
    with store.lock(path), store.lock(path):
        assert not stale.exists()
        assert (path.parent / ".probe.zarr.lock").exists()
    assert not (path.parent / ".probe.zarr.lock").exists()


def test_a_folder_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "download.partial").write_text("half")
    with store.lock(tmp_path / "mine"):
        assert (tmp_path / "mine" / "download.partial").exists()


def test_export_gives_one_file_with_everything(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "probe.nc"
    (tmp_path / ".probe.partial.nc").write_bytes(b"left by an export that was killed")
    store.export(path, out)
    with xr.open_dataset(out, engine="h5netcdf") as exported:
        xr.testing.assert_identical(exported.load(), store.open_store(path).load())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["probe.nc", "probe.zarr"]


def test_a_failed_export_keeps_the_file_that_was_there(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "probe.nc"
    out.write_bytes(b"older")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(UsageError, match=r"no space left to write .*probe.nc"):
            store.export(path, out)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert out.read_bytes() == b"older"
    with pytest.raises(UsageError, match="no folder"):
        store.export(path, tmp_path / "nowhere" / "probe.nc")
