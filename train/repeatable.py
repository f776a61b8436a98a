"""A step that is run twice and compared: what an instrument does before it is trusted."""

from collections.abc import Callable, Mapping
from math import inf, isfinite

from torch import Tensor

from analysis.bytewise import compare
from analysis.errors import Refused
from train.raw_tensors import raw


def check_repeatable(gradient_function: Callable[[], Mapping[str, Tensor]]) -> None:
    """Runs the step twice and refuses if a byte of any tensor differs, naming the first and the likely cause."""
    first = {name: gradient.detach().clone() for name, gradient in gradient_function().items()}
    second = gradient_function()
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise Refused(f"a step repeated gave other tensors: {odd[0]!r} and {len(odd) - 1} more came once only")
    different = [found.name for found in compare(raw(first), raw(second)).differences]
    if different:
        size = max(relative_difference(first[name], second[name]) for name in different)
        raise Refused(
            f"a step repeated with nothing changed gave other gradients: {different[0]!r} is the first of "
            f"{len(different)} of {len(first)} tensors (relative difference {size:.1e}); {likely_cause(size)}"
        )


def relative_difference(a: Tensor, b: Tensor) -> float:
    """|a - b| / |a| in float64; infinite where it cannot be formed (other shapes, NaN, a = 0), 0 for signs of zero."""
    if a.shape != b.shape:
        return inf
    difference, size = (a.double() - b.double()).norm().item(), a.double().norm().item()
    if difference == 0:
        return 0.0
    return difference / size if size > 0 and isfinite(difference) else inf


def likely_cause(size: float) -> str:
    """What to look at first for a relative difference of ``size`` between two repeats."""
    if size < 1e-3:
        return (
            "the size of a changed order of additions: most likely a racing attention backward (use attention sdpa "
            "or math with deterministic=True), else a scatter or resize kernel or a changed number of threads"
        )
    return (
        "far more than rounding: most likely hidden randomness (dropout: call model.eval()) or state kept by the model"
    )
