"""Runs every part of the GPU check in a process of its own, and prints what came of it.

A switch of determinism, a compiled kernel or an error of one part then changes nothing in another. A part that could
not run is "not run", with the reason; only what was seen is "passed".
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

PARTS = {  # seconds that each may take; with --tiny the limit of the whole alone holds
    "race without determinism": 60,
    "race with warn_only": 60,
    "no race under strict determinism": 60,
    "seconds per gradient": 100,
    "steps without determinism": 60,
    "steps without determinism, again": 60,
    "steps with determinism": 80,
    "steps with determinism, again": 80,
    "twins": 20,
    "flash kernel": 40,
    "flash steps": 60,
}
LIMIT = 8 * 60 - 15  # seconds of the whole
CHILD = Path(__file__).with_name("part.py")
PASSED, FAILED, NOT_RUN = "passed", "failed", "not run"


def main() -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true", help="small sizes")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; repeatable; default: all")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of the whole")
    asked = parser.parse_args()
    until = monotonic() + asked.limit
    rows, missing = [], missing_device(asked.device)
    with tempfile.TemporaryDirectory() as folder:
        for part in asked.only or PARTS:
            how = ["--device", asked.device, "--folder", folder, *(["--tiny"] if asked.tiny else [])]
            left = until - monotonic()
            nothing = {"part": part, "state": NOT_RUN, "why": missing}
            rows.append(nothing if missing else taken(part, how, left if asked.tiny else min(PARTS[part], left)))
            print(json.dumps(rows[-1]), flush=True)
    print("\n" + table(rows))
    states = {row["state"] for row in rows}
    return 1 if FAILED in states else 3 if NOT_RUN in states else 0


def missing_device(device: str) -> str:
    """Why no part can run, asked once before any is started; empty where they can."""
    if device == "cpu":
        return ""
    ask = [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"]
    said = subprocess.run(ask, capture_output=True, text=True, check=False)
    if said.returncode:
        return (said.stderr.strip().splitlines() or [f"exit code {said.returncode}"])[-1]
    return "" if said.stdout.strip() == "True" else "torch finds no CUDA device"


def taken(part: str, how: list[str], seconds: float, script: Path = CHILD) -> dict[str, object]:
    """What one part says, or why it says nothing."""
    if seconds <= 1:
        return {"part": part, "state": NOT_RUN, "why": "no time left"}
    command = [sys.executable, str(script), part, *how]
    started = monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"part": part, "state": NOT_RUN, "why": f"not done after {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"part": part, "state": FAILED, "why": why}
    return {"part": part, **json.loads(lines[-1]), "wall_seconds": round(monotonic() - started, 1)}


def table(rows: list[dict[str, object]]) -> str:
    """The rows for docs/gpu.md."""
    lines = ["| part | state | seen |", "|---|---|---|"]
    for row in rows:
        seen = ", ".join(f"{name} {value}" for name, value in row.items() if name not in ("part", "state"))
        lines.append(f"| {row['part']} | {row['state']} | {seen} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
