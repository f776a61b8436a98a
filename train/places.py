"""Where a run and a certificate may be written, looked at before any work is done."""

import json
import os
import tempfile
from pathlib import Path

from analysis.errors import UsageError
from analysis.run_folder import RUN
from train.certificate import Certificate


def check_run(out: Path) -> None:
    """Raise UsageError where no run's folder can be: a file, below another run, or where nothing can be written."""
    if os.path.lexists(out) and not out.is_dir():
        raise UsageError(f"{out} is no folder: give another --out")
    above = Path(os.path.realpath(out)).parents
    for folder in above:
        if (folder / RUN).exists():
            raise UsageError(f"{out} lies in the folder of another run, {folder}: give another --out")
    check_writable(out, next(folder for folder in above if os.path.lexists(folder)))


def check_certificate(out: Path) -> None:
    """Raise UsageError where no certificate can be written, or something else than one would be replaced."""
    if os.path.lexists(out) and not is_certificate(out):
        raise UsageError(f"{out} is there and is no certificate: give another --out")
    check_writable(out, out.parent)


def is_certificate(file: Path) -> bool:
    """Whether ``file`` is what ``train certify`` writes."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and content.keys() == Certificate().as_json().keys()


def check_writable(out: Path, folder: Path) -> None:
    """Raise UsageError where nothing can be written in ``folder``, which ``out`` needs."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{out}: nothing can be written in {folder} ({error.strerror}): give another --out") from None
