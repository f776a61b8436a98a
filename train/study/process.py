"""The process of one run: started, listened to, and ended."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from analysis.disk import naming_the_disk
from train.study.runs import Run, command

PATIENCE = 10.0  # seconds that a process has between being asked to end and being made to
KEPT = 4096  # bytes of its last output


class RunProcess:
    """A run that has begun. Its output goes to NAME.log beside its folder, the end of it is kept here too.

    It is read through a pipe: when the disk is full, the log may lack the very line that says so.
    """

    def __init__(self, run: Run, out: Path) -> None:
        self.run, self.folder = run, out / run.name
        self.log = self.folder.with_name(f"{self.folder.name}.log")
        self.began, self.output, self.unlogged = time.monotonic(), b"", ""
        with naming_the_disk(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log_file = self.log.open("wb", buffering=0)
        # -P: the folder we are in may hold a train.py.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "train.study.child", *command(run.settings, self.folder)[1:]],
            stdin=subprocess.PIPE,  # nothing is written to it; see child.py
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            env=os.environ | {"TQDM_DISABLE": "1"},
        )
        assert self.process.stdout is not None
        self.pipe = self.process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    def has_ended(self) -> bool:
        """Whether it is over; takes in what it wrote since the last call."""
        over = self.process.poll() is not None
        while written := self.pipe.read(65536):  # None: nothing for now
            self.output = (self.output + written)[-KEPT:]
            self.write(written)
        return over

    def write(self, written: bytes) -> None:
        """To the log, as long as that can be written."""
        if not self.unlogged:
            try:
                self.log_file.write(written)
            except OSError as error:
                self.unlogged = f", which is not whole: {error.strerror}"

    @property
    def seconds(self) -> float:
        """Since it was started."""
        return time.monotonic() - self.began

    def failure(self) -> str:
        """Of a process that has ended: the last line of its error, or nothing."""
        code = self.process.returncode
        if code == 0:
            return ""
        if code < 0:
            hint = ", by someone or for want of memory" if -code == signal.SIGKILL else ""
            return f"ended by signal {-code} ({signal.strsignal(-code)}{hint})"
        lines = self.output.decode(errors="replace").strip().splitlines()
        return lines[-1].removeprefix("train: ") if lines else f"exit code {code} and no message"

    def stop(self) -> None:
        """Ask it to end."""
        self.process.terminate()

    def close(self) -> None:
        """Wait for its end, for a while, then make it; and close what is open."""
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.has_ended()
        for file in (self.process.stdin, self.pipe, self.log_file):
            assert file is not None
            file.close()
