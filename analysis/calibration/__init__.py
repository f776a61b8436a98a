"""Does the method keep its promises? Size and coverage on worlds with a planted mean, covariance and bias.

    rates = simulate(Case("images", power_law(1.0), images=12), repeats=4000, seed=0)
    rates["safe_relative"], rates["coverage_relative_bias_squared"]

The planted bias sits exactly at the margin, where either verdict is false as often as it ever is. How noisy the
gradients are is set by two signal-to-noise ratios, since false verdicts are rare where all is clear and where nothing
is. `python -m analysis.calibration` prints the table of docs/method.md, section 6.
"""

from analysis.calibration.cases import HEAVY, MARGIN, RESOLUTIONS, Case, full_grid, grid, outstanding_grid, power_laws
from analysis.calibration.simulate import simulate

__all__ = ["HEAVY", "MARGIN", "RESOLUTIONS", "Case", "full_grid", "grid", "outstanding_grid", "power_laws", "simulate"]
