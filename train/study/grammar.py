"""What is written in small languages, checked by the trainer's own parsers before the first run begins.

Imports torch, as the parsers do.
"""

from analysis import sigma_samplers
from train import arms, weighting
from train.attention import BACKENDS  # noqa: F401  registers them
from train.attention.backend import backend_named
from train.study.file import Study, named_by

PARSERS = {
    "arm": arms.parse,
    "sigma_sampler": sigma_samplers.parse,
    "weighting": weighting.parse,
    "attention": backend_named,
}


def check(study: Study) -> None:
    """Raise a UsageError that names the entry with the first mistake."""
    for entry in study.entries:
        for name, parse in PARSERS.items():
            if name in entry.settings:
                with named_by(entry.where, study.file):
                    parse(entry.settings[name])
