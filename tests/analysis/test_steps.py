"""Stores of several checkpoints: the contract with ``step``, on disk and back, and one step of it again."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from analysis import cells, schema, store, synthetic
from analysis.errors import UsageError
from analysis.provenance import Code, Provenance
from analysis.safety import assess
from analysis.steps import at_step, joined, steps_of

PROVENANCE = Provenance("probes grad", {"seed": 0}, Code("0.1.0"))
STEPS, SIGMAS = (100, 250), (0.25, 0.5, 1.0)


@pytest.fixture(scope="module")
def parts() -> dict[int, xr.Dataset]:
    """A dataset of one adapter at each step."""
    made = {
        step: synthetic.store(
            arms=("native", "demote:56"), sigmas=SIGMAS, blocks=("a", "b"), images=5, draws=2, seed=step
        )
        for step in STEPS
    }
    return {step: schema.described(part) for step, part in made.items()}


@pytest.fixture
def dataset(parts: dict[int, xr.Dataset]) -> xr.Dataset:
    return joined(parts)


def test_a_step_taken_out_is_what_was_put_in(dataset: xr.Dataset, parts: dict[int, xr.Dataset]) -> None:
    schema.validate(dataset)
    assert steps_of(dataset) == STEPS
    assert all(array.dims[0] == "step" for array in dataset.data_vars.values())
    for step, part in parts.items():
        taken = at_step(dataset, step)
        schema.validate(taken)
        xr.testing.assert_equal(taken, part)
        assert steps_of(taken) == ()


def test_the_template_leads_with_step_and_older_ones_have_none() -> None:
    given = (["raw"], SIGMAS, ["a"], ["native"], ["i"], range(2))
    plain, stepped = schema.template(*given, cross=True), schema.template(*given, cross=True, steps=STEPS)
    assert (plain.attrs["schema_version"], stepped.attrs["schema_version"]) == (1, 2)
    assert "step" not in plain.coords
    for name, array in plain.data_vars.items():
        assert stepped[name].dims == ("step", *array.dims)
        assert stepped[name].dtype == array.dtype
    assert stepped["gram_image"].values.strides == (0,) * 8


def test_cells_are_counted_step_by_step(dataset: xr.Dataset) -> None:
    """In the order of ``done`` read row by row."""
    for index, at in enumerate(np.ndindex(*dataset["done"].shape)):
        assert tuple(cells.place(dataset.sizes, index).values()) == at
        assert cells.named(dataset, index) == f"step {STEPS[at[0]]}, sigma {SIGMAS[at[1]]:g}"
    assert cells.count(dataset.sizes) == 6
    plain = at_step(dataset, 100)
    assert [cells.place(plain.sizes, i) for i in range(3)] == [{"sigma": 0}, {"sigma": 1}, {"sigma": 2}]
    assert cells.count(plain.sizes) == 3


def test_a_store_gives_back_every_cell_in_whatever_order(dataset: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "p.zarr"
    template = dataset.assign(done=dataset["done"] & False)
    store.create(path, template, PROVENANCE)
    assert store.missing(path) == [0, 1, 2, 3, 4, 5]
    names = [str(name) for name in dataset.data_vars if name not in ("tokens", "done")]
    for index in (4, 0, 5):
        at = cells.place(dataset.sizes, index)
        store.write_cell(path, index, {name: dataset[name].isel(at).values for name in names})
    assert store.missing(path) == [1, 2, 3]
    opened = store.open_store(path)
    assert opened["done"].values.tolist() == [[True, False, False], [False, True, True]]
    for index in (4, 0, 5):
        at = cells.place(dataset.sizes, index)
        for name in names:
            np.testing.assert_array_equal(opened[name].isel(at).values, dataset[name].isel(at).values)
    assert np.isnan(opened["loss"].isel(step=0, sigma=1).values).all()
    np.testing.assert_array_equal(opened["tokens"].values, dataset["tokens"].values)
    assert sorted(file.name for file in (path / "loss").glob("c.*")) == ["c.0.0.0.0.0", "c.1.1.0.0.0", "c.1.2.0.0.0"]
    with pytest.raises(ValueError, match="index of a cell is 6; want 0 to 5"):
        store.write_cell(path, 6, {name: dataset[name].isel(at).values for name in names})


def test_a_damaged_cell_is_told_with_its_step_and_its_remedy_works(dataset: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "p.zarr"
    store.write(path, dataset, PROVENANCE)
    xr.testing.assert_identical(store.open_store(path).drop_attrs(), dataset.drop_attrs())
    (path / "loss" / "c.1.2.0.0.0").unlink()
    with pytest.raises(UsageError, match="array loss at step 250, sigma 1 is not finite") as caught:
        store.open_store(path)
    told = Path(str(caught.value).split("remove ")[1].split(" and run")[0])
    told.unlink()
    store.open_store(path)
    assert store.missing(path) == [5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.assign_coords(step=[250, 100]), r"coordinate step is \[250, 100\]; want strictly increasing"),
        (lambda d: d.assign_coords(step=[-1, 100]), "want strictly increasing whole numbers from 0"),
        (lambda d: d.assign_coords(step=[1.0, 2.0]), "coordinate step has dtype float64; want int64"),
        (lambda d: d.drop_vars("step"), "coordinate step is missing"),
        (
            lambda d: d.assign(loss=d["loss"].isel(step=0)),
            r"array loss has dimensions \[sigma, arm, image, draw\]; want",
        ),
        (lambda d: d.assign(done=d["done"].transpose("sigma", "step")), r"want \[step, sigma\]"),
    ],
)
def test_a_broken_dataset_is_one_line(dataset: xr.Dataset, change, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        schema.validate(change(dataset))
    assert "\n" not in str(caught.value)


def test_a_step_has_to_be_chosen_and_to_be_there(dataset: xr.Dataset) -> None:
    with pytest.raises(UsageError, match="holds checkpoints after 100, 250 steps; choose one with --step"):
        at_step(dataset, None)
    with pytest.raises(UsageError, match="choose one with --step"):
        assess(dataset)
    with pytest.raises(UsageError, match="step 300 is not in this store; it has 100, 250"):
        at_step(dataset, 300)
    plain = at_step(dataset, 250)
    with pytest.raises(UsageError, match="step 250: this store is of one adapter and has no steps; leave --step out"):
        at_step(plain, 250)
    assert at_step(plain, None) is plain
    only = dataset.isel(step=[1])
    xr.testing.assert_identical(at_step(only, None), plain)


def test_policies_come_back_with_every_step(tmp_path: Path) -> None:
    parts = {
        step: synthetic.policy_store(signed_bias={"demote:56": 0.3}, sigmas=(0.3, 0.6), images=8, draws=8, seed=step)
        for step in STEPS
    }
    path, whole = tmp_path / "p.zarr", joined(parts)
    store.write(path, whole, PROVENANCE)
    opened = store.open_store(path)
    assert opened["gram_policy"].dims == ("step", *schema.ARRAYS["gram_policy"].dims)
    assert opened["fold_of_image"].dims == ("step", "image")
    for step, part in parts.items():
        taken = at_step(opened, step)
        for name in ("gram_policy", "gram_policy_corpus", "fold_of_image"):
            np.testing.assert_array_equal(taken[name].values, part[name].values)
