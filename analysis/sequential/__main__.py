"""`python -m analysis.sequential LOOKS ...`: nominal one-sided levels of so many equally spaced looks."""

import sys

import numpy as np
from scipy import special

from analysis.sequential.boundary import nominal_level

for number in map(int, sys.argv[1:]):
    level = nominal_level(tuple(float(share) for share in np.arange(1, number + 1) / number))
    print(f"{number} looks: nominal level {level:.6f}, bound {-special.ndtri(level):.4f}")
