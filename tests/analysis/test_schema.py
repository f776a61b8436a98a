"""The data contract is checked array by array, and says what is wrong in one line."""

import numpy as np
import pytest
import xarray as xr

from analysis import schema
from analysis.errors import UsageError
from analysis.synthetic import gram_arrays

IMAGES, DRAWS, ARMS = 4, 3, ("native", "demote:56")


def cell(seed: int, *, used: int = IMAGES, cross: bool = True) -> dict[str, np.ndarray]:
    """Arrays of one cell (1 metric, 2 blocks) whose images after ``used`` were not measured."""
    samples = np.random.default_rng(seed).standard_normal((1, 2, len(ARMS), IMAGES, DRAWS, 5))
    samples[:, :, :, used:] = np.nan
    image, draw, _ = gram_arrays(samples)
    arrays = {"gram_image": image, "gram_draw": draw, "loss": samples[0, 0, ..., 0] ** 2}
    if cross:
        arrays["gram_cross"] = gram_arrays(np.nan_to_num(samples))[2]
        arrays["gram_cross"][:, :, used:] = np.nan
    return arrays | {"seconds": np.ones(len(ARMS)), "images_used": np.array(used)}


def dataset(*, cross: bool = True) -> xr.Dataset:
    """Two sigmas, the second done with three of four images."""
    empty = schema.template(
        ["raw"], [0.5, 1.0], ["b0", "b1"], ARMS, [f"i{n}" for n in range(IMAGES)], range(DRAWS), cross=cross
    )
    data = empty.copy(data={name: array.values.copy() for name, array in empty.data_vars.items()})
    for name, values in cell(0, used=3, cross=cross).items():
        data[name].values[(slice(None),) * data[name].dims.index("sigma") + (1,)] = values
    data["done"].values[1] = True
    return data


@pytest.mark.parametrize("cross", [True, False])
def test_template_and_filled_dataset_keep_the_contract(cross: bool) -> None:
    data = dataset(cross=cross)
    schema.validate(data)
    assert ("gram_cross" in data) == cross
    for name, array in schema.ARRAYS.items():
        if name in data:
            assert data[name].attrs == {"long_name": array.long_name, "units": array.units}


def test_template_takes_no_memory_for_gram_matrices() -> None:
    images = [f"image_{n}" for n in range(500)]
    big = schema.template(
        ["raw", "weight"], np.linspace(0.1, 1, 10), [f"b{n}" for n in range(57)], ARMS, images, range(8), cross=True
    )
    assert big["gram_image"].nbytes > 5e9
    assert set(big["gram_image"].values.strides) == {0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.drop_vars("loss"), r"array loss is missing; want loss\[sigma, arm, image, draw\]"),
        (lambda d: d.transpose("metric", "block", ...), r"array gram_image has dimensions \[metric, block, sigma"),
        (lambda d: d.assign(gram_draw=d.gram_draw.astype("f4")), "array gram_draw has dtype float32; want float64"),
        (lambda d: d.assign(done=d.done.astype("i8")), "array done has dtype int64; want bool"),
        (lambda d: d.drop_vars("arm_2"), "coordinate arm_2 is missing"),
        (lambda d: d.assign_coords(arm_2=["demote:56", "native"]), "coordinate arm_2 differs from arm"),
        (lambda d: d.assign_coords(image=["a", "b", "a", "c"]), "coordinate image holds 'a' twice"),
        (lambda d: d.assign_coords(block=["b0", "total"]), "coordinate block holds 'total'"),
        (lambda d: d.assign_coords(block=[0, 1]), "coordinate block has dtype int64; want text"),
        (lambda d: d.assign_coords(sigma=[1.0, 0.5]), r"coordinate sigma is \[1, 0.5\]; want strictly increasing"),
        (lambda d: d.assign_coords(sigma=[0.5, 1.5]), r"want strictly increasing values in \(0, 1\]"),
        (lambda d: d.assign_attrs(schema="other"), "not a probe store: attribute schema is 'other'"),
        (lambda d: d.drop_attrs(), "not a probe store: attribute schema is None"),
        (lambda d: d.assign_attrs(schema_version=3), "schema version 3 is newer than 2"),
        (lambda d: d.assign_attrs(schema_version="1"), "schema_version is '1'; want a whole number"),
    ],
)
def test_a_broken_dataset_is_one_line_that_names_the_array(change, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        schema.validate(change(dataset()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("gram_image", (0, 1, 0, 0, 1, 1, 2), np.nan, "array gram_image at sigma 1 is not finite"),
        ("gram_draw", (0, 1, 1, 2, 0, 0, 0, 1), np.inf, "array gram_draw at sigma 1 is not finite"),
        ("gram_cross", (0, 1, 1, 2, 0, 0, 1), np.nan, "array gram_cross at sigma 1 is not finite"),
        ("loss", (1, 0, 0, 0), np.nan, "array loss at sigma 1 is not finite"),
        ("gram_image", (0, 1, 0, 0, 1, 1, 2), 7.0, "array gram_image at sigma 1 is no Gram matrix"),
        ("gram_draw", (0, 1, 1, 2, 0, 0, 0, 0), -1.0, "array gram_draw at sigma 1 is no Gram matrix"),
        ("images_used", (1,), 0, "images_used at sigma 1 is 0; want 1 to 4"),
        ("images_used", (1,), 4, "array gram_image at sigma 1 is not finite"),
        ("images_used", (1,), 5, "images_used at sigma 1 is 5; want 1 to 4"),
    ],
)
def test_a_done_cell_with_impossible_contents_is_damaged(name: str, place, value: float, message: str) -> None:
    data = dataset()
    data[name].values[place] = value
    with pytest.raises(schema.DamagedCell, match=message) as caught:
        schema.validate(data)
    assert caught.value.index == 1
    schema.validate(data, contents=False)


def test_rounding_and_cells_not_done_are_no_damage() -> None:
    data = dataset()
    data["gram_image"].values[0, 1, 0, 0, 1, 1, 2] *= 1 + 1e-14
    data["gram_image"].values[0, 0] = 5.0
    data["gram_image"].values[0, 1, 0, 0, 0, 0, 3] = 5.0  # the fourth image of a cell that used three
    schema.validate(data)


def test_further_arrays_are_ignored() -> None:
    schema.validate(dataset().assign(note=("image", np.arange(IMAGES))))
