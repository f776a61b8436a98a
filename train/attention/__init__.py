"""The one attention op: every attention call of a step, with an explicit backend and a promise of determinism.

Backends: ``sdpa`` (torch's own), ``flash`` (the flash-attn package), ``math`` (written out), ``racing`` (emulates a
GPU's racing backward).
"""

from train.attention import explicit, flash, racing, sdpa  # noqa: F401  each registers its backend
from train.attention.backend import BACKENDS, Backend, Options, register
from train.attention.calls import AttentionCalls
from train.attention.route import routed

__all__ = ["BACKENDS", "AttentionCalls", "Backend", "Options", "register", "routed"]
