"""A progress bar on standard error that counts gradients, or steps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm


@contextmanager
def counting(total: int, done: int, unit: str = "grad") -> Iterator[Callable[[int], None]]:
    """Yields a function to be told of units as they are done. ``done``: those of an earlier run."""
    with tqdm(total=total, initial=done, unit=unit, dynamic_ncols=True, smoothing=0.05) as bar:

        def tell(gradients: int) -> None:
            bar.update(gradients)

        yield tell
