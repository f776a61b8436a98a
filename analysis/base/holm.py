"""Holm's step-down procedure: adjusted p values that hold for a whole family of hypotheses."""

import numpy as np
from jaxtyping import Float


def adjusted(p_values: Float[np.ndarray, "hypothesis *cells"]) -> Float[np.ndarray, "hypothesis *cells"]:
    """Holm-adjusted p values (Holm 1979) along the first axis; NaN counts as 1, and is 1.

    Rejecting where the adjusted value is below a level keeps the chance of any false rejection below it, whatever the
    dependence.
    """
    values = np.where(np.isnan(p_values), 1.0, p_values)
    order = np.argsort(values, axis=0, kind="stable")
    ranked = np.take_along_axis(values, order, axis=0)
    count = len(values)
    factors = np.arange(count, 0, -1).reshape(-1, *[1] * (values.ndim - 1))
    stepped = np.minimum(np.maximum.accumulate(ranked * factors, axis=0), 1.0)
    out = np.empty_like(values)
    np.put_along_axis(out, order, stepped, axis=0)
    return out
