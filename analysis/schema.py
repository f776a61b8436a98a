"""The data contract: what a probe store holds, version 1; with several checkpoints of one run, version 2.

A probe store is an xarray Dataset whose arrays are the Gram matrices of per-sample gradients, one cell per sigma.
Everything the project reports is computed from it later, without the model::

    dataset = template(["raw"], [0.5, 1.0], ["blocks.0"], ["native", "demote:56"], ["coffee_1"], [0, 1], cross=False)
    validate(dataset)

``ARRAYS`` and ``COORDINATES`` of ``analysis.contract`` are the whole of it. A gradient's twin dimension ends in ``_2``.
Cells are independent: ``done[sigma]`` is written last, and what a cell that is not done holds means nothing. Only the
first ``images_used[sigma]`` images of a done cell hold figures; those after them are NaN. A store may hold further
arrays and attributes, which readers of this version ignore. In version 2 every array has a dimension ``step`` before
its others; ``analysis.steps.at_step`` takes one, which is a dataset of version 1.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis import array_table, cells
from analysis.base.gram_matrix import is_gram
from analysis.contract import ARRAYS, COORDINATES, STEP, dims_of, is_of_cell
from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

SCHEMA = "sigma-probes/probe"
VERSION = 2
"""The last that this program reads. A store without steps says 1, as it always has."""
TOTAL = "total"
"""The name that estimates give the sum over blocks, so no block may have it."""


class DamagedCell(UsageError):
    """A cell says it is done but its arrays cannot be what a sweep wrote."""

    def __init__(self, message: str, index: int):
        super().__init__(message)
        self.index = index


def template(
    metrics: Sequence[str],
    sigmas: Sequence[float],
    blocks: Sequence[str],
    arms: Sequence[str],
    images: Sequence[str],
    draws: Sequence[int],
    *,
    cross: bool,
    steps: Sequence[int] = (),
) -> "xr.Dataset":
    """Dataset of the contract with every label, no cell done and no memory taken by the Gram matrices.

    Arrays with a ``sigma`` dimension are read-only views of one fill value; ``tokens`` is writable zeros. ``cross``
    says whether ``gram_cross`` is there; ``steps`` are those of several checkpoints, none where there is one adapter.
    Raises UsageError for labels the contract does not allow.
    """
    import xarray as xr

    labels: dict[str, np.ndarray] = {
        "metric": np.asarray(metrics, dtype=str),
        "sigma": np.asarray(sigmas, dtype=np.float64),
        "block": np.asarray(blocks, dtype=str),
        "arm": np.asarray(arms, dtype=str),
        "image": np.asarray(images, dtype=str),
        "draw": np.asarray(draws, dtype=np.int64),
    }
    coordinates = {
        name: labels[coordinate.twin_of or name] for name, coordinate in COORDINATES.items() if not coordinate.optional
    }
    if len(steps):
        labels[STEP] = coordinates[STEP] = np.asarray(steps, dtype=np.int64)
    arrays = {}
    for name, array in ARRAYS.items():
        if array.optional and not (cross and name == "gram_cross"):
            continue
        dims = dims_of(name, steps=STEP in labels)
        shape = tuple(labels[dim.removesuffix("_2")].size for dim in dims)
        fill = np.array(fill_value(array.dtype), dtype=array.dtype)
        values = np.broadcast_to(fill, shape) if "sigma" in dims else np.full(shape, fill)
        arrays[name] = (dims, values)
    dataset = described(xr.Dataset(arrays, coordinates))
    validate(dataset, contents=False)
    return dataset


def described(dataset: "xr.Dataset") -> "xr.Dataset":
    """The same arrays and labels with the contract's long names, units and schema version in the attributes."""
    dataset = dataset.assign_attrs(schema=SCHEMA, schema_version=2 if STEP in dataset.dims else 1)
    for name, about in (ARRAYS | COORDINATES).items():
        if name in dataset.variables:
            dataset[name] = dataset[name].assign_attrs(long_name=about.long_name, units=about.units)
    return dataset


def fill_value(dtype: str) -> float | int | bool:
    """What an unwritten element of ``dtype`` reads as."""
    return {"float64": float("nan"), "int64": 0, "bool": False}[dtype]


def validate(dataset: "xr.Dataset", *, contents: bool = True) -> None:
    """Raise UsageError, one line, unless ``dataset`` keeps the contract.

    The line names the array, what it is and what it should be. With ``contents`` every done cell is read, one at a
    time, and must hold finite, symmetric Gram matrices and finite losses (DamagedCell otherwise).
    """
    check_version(dataset.attrs)
    _check_labels(dataset)
    for name, array in ARRAYS.items():
        if name not in dataset.data_vars:
            if array.optional:
                continue
            raise UsageError(f"array {name} is missing; want {name}[{', '.join(array.dims)}]")
        got, dims = dataset[name], dims_of(name, steps=STEP in dataset.dims)
        if got.dims != dims:
            raise UsageError(f"array {name} has dimensions {_listed(got.dims)}; want {_listed(dims)}")
        if got.dtype != np.dtype(array.dtype):
            raise UsageError(f"array {name} has dtype {got.dtype}; want {array.dtype}")
    if contents:
        for index in np.flatnonzero(_read(dataset, "done", None)):
            _validate_done_cell(dataset, int(index))


def check_version(attributes: Mapping[str, Any]) -> None:
    """Raise UsageError unless the attributes are those of a store that this version reads."""
    array_table.check_version(attributes, SCHEMA, VERSION, what="a probe store")


def check_cell(arrays: Mapping[str, np.ndarray], where: str, index: int) -> None:
    """Raise DamagedCell unless one cell's arrays (without their axes of cells) can be what a sweep computes.

    Only the first ``images_used`` images are looked at. ``where`` names the cell ``index``, such as "sigma 0.5".
    """
    used = int(arrays["images_used"])
    total = arrays["loss"].shape[1]
    if not 1 <= used <= total:
        raise DamagedCell(f"images_used at {where} is {used}; want 1 to {total}", index)
    held = {
        "gram_image": arrays["gram_image"][:, :, :, :used, :, :used],
        "gram_draw": arrays["gram_draw"][:, :, :used],
        "loss": arrays["loss"][:, :used],
    }
    if "gram_cross" in arrays:
        held["gram_cross"] = arrays["gram_cross"][:, :, :used]
    for name, values in held.items():
        if not np.isfinite(values).all():
            raise DamagedCell(f"array {name} at {where} is not finite though the cell is done", index)
    for name in ("gram_image", "gram_draw"):
        side = int(np.prod(held[name].shape[-2:]))
        if not is_gram(held[name].reshape(-1, side, side)):
            raise DamagedCell(f"array {name} at {where} is no Gram matrix: not symmetric, or a negative square", index)


def _validate_done_cell(dataset: "xr.Dataset", index: int) -> None:
    names = [name for name, array in ARRAYS.items() if is_of_cell(array.dims) and name in dataset.data_vars]
    cell = {name: _read(dataset, name, index) for name in names}
    check_cell(cell, cells.named(dataset, index), index)


def _read(dataset: "xr.Dataset", name: str, index: int | None) -> np.ndarray:
    """Values of an array, of one cell if ``index`` is given; a read error becomes a UsageError that names it."""
    try:
        return (dataset[name] if index is None else dataset[name].isel(cells.place(dataset.sizes, index))).values
    except Exception as error:  # zarr's codecs raise errors of many unrelated types
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        if index is None:
            raise UsageError(f"array {name} cannot be read ({reason})") from error
        at = cells.named(dataset, index)
        raise DamagedCell(f"array {name} at {at} cannot be read ({reason})", index) from error


def _check_labels(dataset: "xr.Dataset") -> None:
    for name, coordinate in COORDINATES.items():
        if name not in dataset.coords:
            if coordinate.optional and name not in dataset.dims:
                continue
            raise UsageError(f"coordinate {name} is missing; want labels for dimension {name}")
        labels = dataset[name]
        if labels.dims != (name,):
            raise UsageError(f"coordinate {name} has dimensions {_listed(labels.dims)}; want [{name}]")
        kind = "U" if labels.dtype.kind in "UTO" else labels.dtype.kind
        if kind != coordinate.kind:
            raise UsageError(f"coordinate {name} has dtype {labels.dtype}; want {_KINDS[coordinate.kind]}")
        values = labels.values.tolist()
        if not values:
            raise UsageError(f"coordinate {name} is empty; want at least one label")
        repeated = next((value for place, value in enumerate(values) if value in values[:place]), None)
        if repeated is not None:
            raise UsageError(f"coordinate {name} holds {repeated!r} twice; want every label once")
        if coordinate.twin_of and values != dataset[coordinate.twin_of].values.tolist():
            raise UsageError(f"coordinate {name} differs from {coordinate.twin_of}; want the same labels in one order")
    if TOTAL in dataset["block"].values.tolist():
        raise UsageError(f"coordinate block holds {TOTAL!r}, which names the sum over blocks; want another name")
    sigmas = dataset["sigma"].values
    if not ((sigmas > 0) & (sigmas <= 1)).all() or not (np.diff(sigmas) > 0).all():
        raise UsageError(f"coordinate sigma is {_listed(sigmas)}; want strictly increasing values in (0, 1]")
    if STEP in dataset.dims:
        steps = dataset[STEP].values
        if not (steps >= 0).all() or not (np.diff(steps) > 0).all():
            raise UsageError(f"coordinate step is {_listed(steps)}; want strictly increasing whole numbers from 0")


_KINDS = {"U": "text", "f": "float64", "i": "int64"}


def _listed(values: Any) -> str:
    return "[" + ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in values) + "]"
