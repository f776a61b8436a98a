"""Single-step gradients of treated and native steps: how large a change is, before chaos has had time to act.

``probes grad`` probes a diffusion transformer; ``probe`` does the same for any module, loss and arm
of your own (see ``probes.own`` for a worked example).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probes.own import probe as probe

__all__ = ["probe"]


def __getattr__(name: str) -> Any:
    # Imported on first use: the command line must answer --help without loading torch.
    if name == "probe":
        from probes.own import probe

        return probe
    raise AttributeError(f"module 'probes' has no attribute {name!r}")
