"""Reading safetensors files: what is in them, and one line for whatever is no whole one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save_file

from analysis.bytewise import Layout, RawTensor
from analysis.dtypes import BITS
from analysis.errors import UsageError
from analysis.safetensors_file import HEADER_LIMIT, opened


def whole(tensor: RawTensor) -> bytes:
    data = bytearray(tensor.layout.bytes)
    tensor.read_into(0, memoryview(data))
    return bytes(data)


def read(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Everything of a file."""
    with opened(path) as file:
        return {name: (t.layout.dtype, t.layout.shape, whole(t)) for name, t in file.tensors.items()}


def headed(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A file of this header, as JSON unless it is bytes already, whatever it says."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_it_reads_what_the_library_writes(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "b.10.w": random.normal(size=(3, 4)).astype(np.float32),
        "a": random.integers(0, 9, (2, 1, 5)),
        "half": random.normal(size=7).astype(np.float16),
        "flag": np.array([True, False]),
        "none": np.zeros((0, 3), np.float64),
        "scalar": np.array(2.5),
    }
    path = tmp_path / "x.safetensors"
    save_file(arrays, path, {"format": "np"})
    found = read(path)
    assert {name: (shape, data) for name, (_, shape, data) in found.items()} == {
        name: (array.shape, array.tobytes()) for name, array in arrays.items()
    }
    with opened(path) as file:
        assert file.metadata == {"format": "np"}
        assert file.tensors["a"].layout == Layout("I64", (2, 1, 5))


@pytest.mark.parametrize("dtype", sorted(BITS))
def test_every_dtype_of_the_library_is_known(safetensors_writer, dtype: str) -> None:
    data = bytes(range(BITS[dtype]))
    path = safetensors_writer("x.safetensors", {"w": (dtype, (8,), data)})
    assert read(path) == {"w": (dtype, (8,), data)}
    ((_, theirs),) = deserialize(path.read_bytes())
    assert (theirs["dtype"], theirs["shape"], bytes(theirs["data"])) == (dtype, [8], data)


def test_pieces_are_read_from_where_they_lie(safetensors_writer) -> None:
    path = safetensors_writer("x.safetensors", {"a": ("U8", (3,), b"abc"), "b": ("U8", (4,), b"defg")})
    buffer = bytearray(2)
    with opened(path) as file:
        file.tensors["b"].read_into(1, memoryview(buffer))
    assert buffer == b"ef"


BAD = {
    "an empty file": (b"", "0 bytes are too few"),
    "a few bytes": (b"1234567", "7 bytes are too few"),
    "a huge header": (headed({}, length=HEADER_LIMIT + 1), f"header would have {HEADER_LIMIT + 1} bytes"),
    "a header cut off": (headed({"w": entry()})[:20], "cut off within its header"),
    "no JSON": (headed(b"{nonsense}"), "header is no valid JSON"),
    "no object": (headed([]), "header is no JSON object"),
    "another encoding": (headed(b'{"\xff": 1}'), "header is no valid JSON"),
    "brackets without end": (headed(b'{"a":' + b"[" * 100_000), "header is no valid JSON"),
    "a number without end": (headed(b'{"a":' + b"9" * 5000 + b"}"), "header is no valid JSON"),
    "half a surrogate pair": (headed(b'{"\\ud800": null}'), "header is no valid JSON"),
    "a name twice": (headed(b'{"a": {}, "a": {}}'), "a name stands twice"),
    "metadata of numbers": (headed({"__metadata__": {"a": 1}}), "metadata are not pairs of texts"),
    "metadata in a list": (headed({"__metadata__": ["a"]}), "metadata are not pairs of texts"),
    "an entry of no tensor": (headed({"w": 3}), "the entry of 'w' is not a dtype, a shape and two offsets"),
    "three offsets": (headed({"w": entry(offsets=[0, 4, 8])}), "the entry of 'w' is not"),
    "an unknown dtype": (headed({"w": entry("F31")}, bytes(8)), "'w' has dtype 'F31'; known are BOOL, U8"),
    "a fractional length": (headed({"w": entry(shape=[2.0])}, bytes(8)), "not whole numbers"),
    "a negative length": (headed({"w": entry(shape=[-2, -1])}, bytes(8)), "not whole numbers"),
    "a true length": (headed({"w": entry(shape=[True, 2])}, bytes(8)), "not whole numbers"),
    "a negative offset": (headed({"w": entry(offsets=[-8, 0])}, bytes(8)), "not whole numbers"),
    "an impossible shape": (headed({"w": entry(shape=[2**40] * 1000)}, bytes(8)), "larger than any file"),
    "a shape of other size": (headed({"w": entry(shape=[3])}, bytes(8)), r"'w', F32 \[3\], does not fit bytes 0 to 8"),
    "offsets the wrong way": (headed({"w": entry(shape=[0], offsets=[8, 0])}, bytes(8)), "does not fit bytes 8 to 0"),
    "a gap": (headed({"w": entry(offsets=[4, 12])}, bytes(12)), "'w' begins at byte 4 of the data, expected 0"),
    "an overlap": (
        headed({"v": entry(), "w": entry(offsets=[4, 12])}, bytes(12)),
        "'w' begins at byte 4 of the data, expected 8",
    ),
    "data cut off": (headed({"w": entry()}, bytes(7)), r"header describes \d+ bytes, \d+ are there"),
    "data behind the end": (headed({"w": entry()}, bytes(9)), r"header describes \d+ bytes, \d+ are there"),
    "data of no tensor": (headed({}, bytes(1)), r"header describes \d+ bytes, \d+ are there"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_file_is_named_and_what_is_wrong_with_it(tmp_path: Path, what: str) -> None:
    content, message = BAD[what]
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught, opened(path):
        pass
    assert str(caught.value).startswith(f"{path} is no whole safetensors file: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300


@pytest.mark.parametrize("metadata", [None, {}, {"a": "b"}])
def test_metadata_may_be_missing(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(headed({"__metadata__": metadata}))
    with opened(path) as file:
        assert file.metadata == (metadata or {})


def test_what_is_no_readable_file_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"nothing cannot be read \(No such file or directory\)"):
        opened(tmp_path / "nothing").__enter__()
    with pytest.raises(UsageError, match="is no file: give a safetensors file"):
        opened(tmp_path).__enter__()

    def refused(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "closed").write_bytes(headed({}))
    monkeypatch.setattr("analysis.safetensors_file.FileIO", refused)
    with pytest.raises(UsageError, match=r"closed cannot be read \(Permission denied\)"):
        opened(tmp_path / "closed").__enter__()


def test_a_file_shortened_while_it_is_read_is_one_line(safetensors_writer) -> None:
    path = safetensors_writer("x.safetensors", {"w": ("U8", (9,), bytes(9))})
    with opened(path) as file:
        with path.open("r+b") as other:
            other.truncate(path.stat().st_size - 1)
        with pytest.raises(UsageError, match="became shorter while it was read"):
            whole(file.tensors["w"])


def test_a_disk_that_fails_is_one_line(safetensors_writer, monkeypatch: pytest.MonkeyPatch) -> None:
    from io import FileIO

    class Failing(FileIO):
        def readinto(self, buffer: Any) -> int:
            if self.tell() > 8:
                raise OSError(5, "Input/output error")
            return super().readinto(buffer) or 0

    path = safetensors_writer("x.safetensors", {"w": ("U8", (9,), bytes(9))})
    monkeypatch.setattr("analysis.safetensors_file.FileIO", Failing)
    with pytest.raises(UsageError, match=r"x.safetensors cannot be read \(Input/output error\)"):
        read(path)


VALID = headed(
    {
        "__metadata__": {"format": "pt"},
        "v.1": entry("BF16", [2, 2], [0, 8]),
        "v.2": entry("F8_E4M3", [4], [8, 12]),
        "none": entry("F64", [0, 3], [12, 12]),
        "w": entry("F32", [], [12, 16]),
    },
    bytes(range(16)),
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid file, cut, with bytes changed, taken out or put in, once or a few times."""
    content = bytearray(VALID)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        match draw(st.sampled_from(["cut", "change", "digit", "remove", "insert", "swap"])):
            case "cut":
                del content[at:]
            case "change":
                content[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "digit":
                places = [place for place, byte in enumerate(content[8:-16], 8) if chr(byte).isdigit()]
                if places:
                    content[draw(st.sampled_from(places))] = draw(st.sampled_from(b"0123456789"))
            case "remove":
                del content[at : at + draw(st.integers(1, 9))]
            case "insert":
                content[at:at] = draw(st.binary(min_size=1, max_size=9))
            case _:
                to = draw(st.integers(0, len(content)))
                content[at : at + 2], content[to : to + 2] = content[to : to + 2], content[at : at + 2]
    return bytes(content)


@settings(max_examples=250)
@given(damaged())
def test_damage_is_a_usage_error_or_the_file_is_as_the_library_reads_it(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.safetensors"
    path.write_bytes(content)
    try:
        theirs = {
            name: (tensor["dtype"], tuple(tensor["shape"]), bytes(tensor["data"]))
            for name, tensor in deserialize(content)
        }
    except SafetensorError:
        with pytest.raises(UsageError), opened(path):
            pass
    else:
        assert read(path) == theirs
