"""One part of the GPU check, in this process: one line of JSON at the end. ``check.py`` calls it."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import flash
import gradients
import race
import steps
from size import Size, not_run


def parts(size: Size) -> dict[str, Callable[[], dict[str, object]]]:
    """By the names of ``check.py``."""
    return {
        "race without determinism": lambda: race.seen(size, "off"),
        "race with warn_only": lambda: race.seen(size, "warn_only"),
        "no race under strict determinism": lambda: race.seen(size, "strict"),
        "seconds per gradient": lambda: gradients.timed(size),
        "steps without determinism": lambda: steps.taken(size, "free", deterministic=False),
        "steps without determinism, again": lambda: steps.taken(size, "free again", deterministic=False),
        "steps with determinism": lambda: steps.taken(size, "strict", deterministic=True),
        "steps with determinism, again": lambda: steps.taken(size, "strict again", deterministic=True),
        "twins": lambda: steps.twins(size),
        "flash kernel": lambda: flash.kernel(size),
        "flash steps": lambda: flash.steps(size),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part")
    parser.add_argument("--device", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    asked = parser.parse_args()
    size = Size(asked.device, asked.tiny, asked.folder)
    print(json.dumps(not_run(size.why_not()) if size.why_not() else parts(size)[asked.part]()))


if __name__ == "__main__":
    main()
