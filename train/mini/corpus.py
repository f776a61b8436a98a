"""The shipped corpus: a few dozen crops of the photographs that the mini model never saw."""

from pathlib import Path

import numpy as np

from train.mini.photographs import crop, photographs

CROPS_EACH = 5
DULL = 12.0  # grey levels: crops whose standard deviation is smaller show next to nothing and are drawn again


def cut(folder: Path, *, seed: int, unpacked: Path) -> list[str]:
    """Write the crops as ``NN_PHOTOGRAPH.png`` into ``folder``, one photograph after the other; returns their names.

    So the first few images of the corpus are already of every photograph.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sources = [
        (photograph.name, photograph.open(unpacked), np.random.default_rng([seed, i]))
        for i, photograph in enumerate(photographs("corpus"))
    ]
    names = []
    for name, picture, rng in sources * CROPS_EACH:
        found = crop(picture, rng)
        while np.asarray(found.convert("L")).std() < DULL:
            found = crop(picture, rng)
        names.append(f"{len(names):02d}_{name}")
        found.save(folder / f"{names[-1]}.png", optimize=True)
    return names
