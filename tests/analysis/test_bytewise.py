"""Two collections of tensors: what is the same to the byte, what is not, and what is only on one side."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import bytewise
from analysis.bytewise import CHUNK, Comparison, Layout, RawTensor, compare, digests, held
from analysis.distance import NONE, Distance

NUMPY = {"F64": "f8", "F32": "f4", "F16": "f2", "I32": "i4", "U8": "u1"}


def raw(array: np.ndarray, dtype: str = "F32") -> RawTensor:
    return held(dtype, array.shape, array)


def test_equal_collections_are_identical_whatever_their_order() -> None:
    tensors = {"a.1.w": raw(np.ones((2, 3), np.float32)), "b": raw(np.zeros(4, np.float32))}
    found = compare(tensors, dict(reversed(tensors.items())))
    assert found == Comparison(2, (), (), ())
    assert found.identical
    assert found.distance == NONE


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (0x80000000, 0x00000000, False),  # -0.0 and 0.0
        (0x7FC00000, 0x7FC00000, True),  # NaN and itself
        (0x7FC00000, 0x7FC00001, False),  # NaN of other bits
    ],
)
def test_bytes_are_compared_as_bytes(a: int, b: int, *, same: bool) -> None:
    found = compare({"w": raw(np.array([a], np.uint32))}, {"w": raw(np.array([b], np.uint32))})
    assert found.identical is same


def test_differences_stand_in_the_order_given_with_block_and_layouts() -> None:
    names = ["x.2.b", "x.10.a", "same", "x.2.a"]
    a = {name: raw(np.ones(3, np.float32)) for name in names}
    b = a | {name: raw(np.full(3, 1.5, np.float32)) for name in names if name != "same"}
    b["x.2.a"] = raw(np.ones((3, 1), np.float32))
    b["x.10.a"] = raw(np.ones(3, np.int32), "I32")
    first, second, third = compare(a, b).differences
    assert (first.name, first.block, first.distance) == ("x.2.b", "x.2", Distance(3, 0.5))
    assert (second.name, second.block, second.distance) == ("x.10.a", "x.10", None)
    assert (second.a, second.b) == (Layout("F32", (3,)), Layout("I32", (3,)))
    assert (third.name, third.a.shape, third.b.shape, third.distance) == ("x.2.a", (3,), (3, 1), None)
    assert compare(a, b).distance == Distance(3, 0.5)


def test_the_same_bytes_under_another_dtype_differ() -> None:
    data = np.zeros(4, np.uint8)
    assert not compare({"w": held("F32", (1,), data)}, {"w": held("I32", (1,), data)}).identical


def test_names_on_one_side_are_told() -> None:
    one = raw(np.ones(1, np.float32))
    found = compare({"both": one, "left": one}, {"right": one, "both": one})
    assert found == Comparison(1, (), ("left",), ("right",))
    assert not found.identical


def test_tensors_without_elements_and_without_axes() -> None:
    tensors = {"empty": raw(np.ones((0, 4), np.float32)), "scalar": raw(np.array(1.0, np.float32))}
    assert compare(tensors, tensors) == Comparison(2, (), (), ())
    other = tensors | {"scalar": raw(np.array(3.0, np.float32))}
    assert compare(tensors, other).distance == Distance(1, 2.0)


@pytest.mark.parametrize("place", [0, CHUNK // 4 - 1, CHUNK // 4, 2 * CHUNK // 4 + 4])
def test_one_element_is_found_wherever_it_is(place: int) -> None:
    a = np.zeros(2 * CHUNK // 4 + 5, np.float32)
    b = a.copy()
    b[place] = -3
    told: list[int] = []
    (found,) = compare({"w": raw(a)}, {"w": raw(b)}, told.append).differences
    assert found.distance == Distance(1, 3.0)
    assert sum(told) == a.nbytes
    assert max(told) == CHUNK


def test_what_differs_in_several_chunks_is_one_distance() -> None:
    a = np.zeros(3 * CHUNK // 4, np.float32)
    b = a.copy()
    b[[0, CHUNK // 4, -1]] = [1, np.nan, 0.5]
    (found,) = compare({"w": raw(a)}, {"w": raw(b)}).differences
    assert found.distance == Distance(3, 1.0, nan_on_one_side=1)


def test_what_an_earlier_tensor_left_in_the_buffers_does_not_count() -> None:
    """The second tensor is shorter than the first, which differs at its end."""
    long_a, long_b = np.zeros(64, np.uint8), np.ones(64, np.uint8)
    short = np.full(8, 7, np.uint8)
    found = compare(
        {"long": raw(long_a, "U8"), "short": raw(short, "U8")}, {"long": raw(long_b, "U8"), "short": raw(short, "U8")}
    )
    assert [difference.name for difference in found.differences] == ["long"]


@st.composite
def collections(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Two sets of named arrays that share most, with NaN and zeros of both signs among the values."""
    numbers = st.sampled_from([0.0, -0.0, 1.0, 2.0])
    sides: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = ({}, {})
    for name in draw(st.lists(st.sampled_from("abcdef"), unique=True)):
        kind = draw(st.sampled_from(sorted(NUMPY)))
        first = np.array(draw(st.lists(numbers, min_size=1, max_size=9))).astype(NUMPY[kind])
        second = first.copy()
        for place in draw(st.lists(st.integers(0, first.size - 1), max_size=3)):
            second[place] += draw(st.sampled_from([1, 3]))
        if draw(st.integers(0, 5)) == 0:
            second = second.reshape(1, -1)
        present = draw(st.sampled_from([(0,), (1,), (0, 1), (0, 1), (0, 1)]))
        for side in present:
            sides[side][name] = (first, second)[side]
    return sides


@given(collections(), st.sampled_from([16, 24, CHUNK]))
def test_it_is_what_dense_comparison_finds(
    sides: tuple[dict[str, np.ndarray], dict[str, np.ndarray]], chunk: int
) -> None:
    """Also with chunks so small that every tensor takes several."""
    a, b = sides
    kinds = {np.dtype(code): name for name, code in NUMPY.items()}
    raw_a, raw_b = ({name: raw(array, kinds[array.dtype]) for name, array in side.items()} for side in sides)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bytewise, "CHUNK", chunk)
        patch.setattr(bytewise, "PIECE", 2)
        found = compare(raw_a, raw_b)
    shared = [name for name in a if name in b]
    assert found.tensors == len(shared)
    assert found.only_in_a == tuple(name for name in a if name not in b)
    assert found.only_in_b == tuple(name for name in b if name not in a)
    expected = [name for name in shared if (a[name].shape, a[name].tobytes()) != (b[name].shape, b[name].tobytes())]
    assert [difference.name for difference in found.differences] == expected
    for difference in found.differences:
        x, y = (side[difference.name].astype(float) for side in sides)
        if x.shape == y.shape:
            assert difference.distance is not None
            assert difference.distance == Distance(int((x != y).sum()), np.abs(x - y).max())
        else:
            assert difference.distance is None


def test_a_tensor_of_too_few_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"4 bytes given for BF16 \[3\], which takes 6"):
        held("BF16", (3,), np.zeros(4, np.uint8))


def test_arrays_that_are_not_contiguous_are_taken_in_their_own_order() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert compare({"w": raw(array.T)}, {"w": raw(array.T.copy())}).identical
    assert not compare({"w": raw(array.T)}, {"w": held("F32", (4, 3), array)}).identical


def test_digests_are_equal_where_comparing_finds_no_difference() -> None:
    long = (np.arange(700_000) % 251).astype(np.uint8)
    a = {"zero": raw(np.zeros(3, np.float32)), "long": raw(long, "U8")}
    other = long.copy()
    other[-1] += 1
    b = {"zero": raw(-np.zeros(3, np.float32)), "long": raw(other, "U8")}
    assert digests(a) == digests(dict(a))
    assert all(digests(a)[name] != digests(b)[name] for name in a)
    assert digests({"x": raw(np.zeros(4, np.float32))}) != digests({"x": raw(np.zeros((2, 2), np.float32))})
