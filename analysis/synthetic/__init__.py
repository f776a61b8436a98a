"""Data with known answers: planted gradients, their Gram arrays, and whole probe stores.

    from analysis import synthetic

    data = synthetic.store(images=12, relative_bias={"demote:56": 0.2})

Every estimator is tested on these before it is trusted with a model (docs/method.md, section 6).
"""

from analysis.synthetic.from_store import spectrum
from analysis.synthetic.horizon_store import horizon_store
from analysis.synthetic.mini import mini_spectrum
from analysis.synthetic.planted import DIRECTIONS, Draws, Planted, power_law, sample
from analysis.synthetic.policy_store import policy_store
from analysis.synthetic.probe_store import ARMS, SIGMAS, gram_arrays, store

__all__ = [
    "ARMS",
    "DIRECTIONS",
    "SIGMAS",
    "Draws",
    "Planted",
    "gram_arrays",
    "horizon_store",
    "mini_spectrum",
    "policy_store",
    "power_law",
    "sample",
    "spectrum",
    "store",
]
