"""What a person sees while a study runs: on a terminal a bar for each running run, and a line for each that ended."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tqdm import tqdm

from analysis.run_folder import METRICS, checkpoint_steps
from train.study.runs import Run

TAIL = 1 << 16  # bytes; a line of metrics.jsonl is far shorter


class Progress:
    """Standard error. Where it is no terminal the bars are not drawn."""

    def __init__(self) -> None:
        self.bars: dict[str, tqdm[Any]] = {}

    def begin(self, run: Run, folder: Path) -> None:
        """A run has been started, from nothing or from what its folder holds."""
        done = max(checkpoint_steps(folder), default=0)
        self.bars[run.name] = tqdm(
            total=run.settings.steps, initial=done, desc=run.name, unit="it", dynamic_ncols=True, smoothing=0.05,
            leave=False, disable=None,
        )  # fmt: skip

    def follow(self, run: Run, folder: Path) -> None:
        """Bring its bar to the last step that its folder tells of."""
        bar = self.bars[run.name]
        if bar.disable:
            return
        line = last_step(folder)
        if line and line["step"] != bar.n:  # less after a resume, which drops steps after the last checkpoint
            bar.set_postfix(loss=f"{line['loss']:.4f}", refresh=False)
            bar.update(line["step"] - bar.n)

    def end(self, run: Run, told: str) -> None:
        """Its bar makes room for a line."""
        self.bars.pop(run.name).close()
        self.say(f"{run.name}: {told}")

    def say(self, line: str) -> None:
        """A line above the bars."""
        tqdm.write(line, file=sys.stderr)
        sys.stderr.flush()

    def close(self) -> None:
        """No bar stays."""
        for bar in self.bars.values():
            bar.close()


def last_step(folder: Path) -> dict[str, Any]:
    """The last whole line of a run's ``metrics.jsonl``; empty before the first."""
    try:
        with (folder / METRICS).open("rb") as file:
            start = file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    whole = [line for line in lines[bool(start) :] if line.endswith(b"\n")]  # the first one may have lost its start
    return json.loads(whole[-1]) if whole else {}
