"""A figure as a PNG file that is there whole or not at all."""

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write(figure: "Figure", path: Path) -> None:
    """Replace what stands at ``path``. UsageError as of ``atomic.replacing``."""
    with replacing(path) as partial:
        figure.savefig(partial, format="png")
