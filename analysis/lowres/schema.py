"""The data contract of published per-image records, version 1.

One number per sigma, arm and image, as it was published; NaN is a figure the record lacks. The native arm was drawn
twice, a and b; an arm's figures are about its own gradient e, in halves d and d'. sigma = 1, pure noise, is a cell of
its own and no end of a curve.
"""

from typing import TYPE_CHECKING

from analysis.errors import UsageError

if TYPE_CHECKING:
    import xarray as xr

SCHEMA, VERSION = "sigma-probes/published", 1

ABOUT: dict[str, tuple[tuple[str, ...], str, str, str, bool]] = {
    # name: dimensions, numpy's kind, units, meaning, whether it may be absent
    "cos_floor": (("sigma", "image"), "f", "1", "cosine of the two native gradients, cos(a, b)", False),
    "gradient_norm_native": (("sigma", "image"), "f", "gradient norm", "norm of the native gradient", False),
    "cosine": (("sigma", "arm", "image"), "f", "1", "mean cosine with the native two, of a and b with e", False),
    "cos_self": (("sigma", "arm", "image"), "f", "1", "cosine of the arm's two halves, cos(d, d')", False),
    "debiased_gap": (
        ("sigma", "arm", "image"), "f", "1", "1 - cos(a + b, d + d') / sqrt(cos(a, b) cos(d, d'))", False,
    ),
    "gradient_norm": (("sigma", "arm", "image"), "f", "gradient norm", "norm of the arm's gradient", False),
    "redundancy": (("image",), "f", "1", "redundancy of the image, as published", True),
    "tokens_native": (("image",), "i", "tokens", "image tokens of the native step", True),
    "sigma": (("sigma",), "f", "1", "flow-matching noise level, 1 is pure noise", False),
    "arm": (("arm",), "U", "1", "way of making a training step", False),
    "image": (("image",), "U", "1", "image of the published record", False),
}  # fmt: skip


def described(dataset: "xr.Dataset") -> "xr.Dataset":
    """The same with the contract's units and long names, and the schema's name and version. Checks it on the way."""
    dataset = dataset.assign_attrs(schema=SCHEMA, schema_version=VERSION)
    for name, (dims, kind, units, long_name, optional) in ABOUT.items():
        if name not in dataset.variables:
            if optional:
                continue
            raise UsageError(f"array {name} is missing; want {name}[{', '.join(dims)}]")
        got = dataset[name]
        if got.dims != dims or got.dtype.kind != kind:
            raise UsageError(
                f"array {name} is {got.dtype}[{', '.join(map(str, got.dims))}]; "
                f"want kind {kind!r} and [{', '.join(dims)}]"
            )
        dataset[name] = got.assign_attrs(units=units, long_name=long_name)
    return dataset
