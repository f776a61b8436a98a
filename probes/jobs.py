"""Cells computed by several processes at once; this one writes what they find, in whatever order it comes.

On a CPU two processes of one thread are faster than one of two: small operations do not share well. A cell is the same
to the byte whoever computes it, as long as the threads of one process are the same.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import psutil

from analysis.errors import Refused, UsageError

GIB_OF_A_JOB = 4  # of memory that is free when a sweep chooses its number of processes
MOST = 8  # processes that a sweep chooses by itself

Arrays = dict[str, np.ndarray]
#: In the new process: makes what computes a cell, (position of the cell, progress) -> its arrays.
Prepare = Callable[[Any], Callable[[int, Callable[[int], None]], Arrays]]


def jobs_for(cells: int) -> int:
    """How many processes suit this machine and ``cells``: a core each, and 4 GiB of free memory each."""
    free = psutil.virtual_memory().available // 2**30  # what the disk's cache holds can be had, and counts
    return max(1, min(len(os.sched_getaffinity(0)), cells, free // GIB_OF_A_JOB, MOST))


def in_processes(
    prepare: Prepare,
    given: Any,
    cells: Sequence[int],
    jobs: int,
    write: Callable[[int, Arrays], None],
    progress: Callable[[int], None],
) -> None:
    """Compute ``cells`` in ``jobs`` new processes and ``write`` each as it comes. ``given`` goes to ``prepare``.

    Raises what a process raised, UsageError and Refused as they are. All processes have ended when this returns.
    """
    context = get_context("spawn")
    processes, ours = [], []
    for job in range(jobs):
        here, there = context.Pipe(duplex=False)
        work = (prepare, given, cells[job::jobs], there, os.getpid())
        process = context.Process(target=worker, args=work, daemon=True)
        process.start()
        there.close()
        processes.append(process)
        ours.append(here)
    try:
        while ours:
            for connection in wait(ours):
                assert isinstance(connection, Connection)
                receive(connection, ours, write, progress)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def receive(
    connection: Connection,
    ours: list[Connection],
    write: Callable[[int, Arrays], None],
    progress: Callable[[int], None],
) -> None:
    """Take one message of a process: gradients done, a cell, an error, or that it has finished."""
    try:
        message = connection.recv()
    except EOFError:
        raise RuntimeError("a process ended before its cells were done; was it killed for memory?") from None
    match message:
        case None:
            ours.remove(connection)
        case int(gradients):
            progress(gradients)
        case (int(cell), dict(arrays)):
            write(cell, arrays)
        case error:
            raise error


def worker(prepare: Prepare, given: Any, cells: Sequence[int], there: Connection, parent: int) -> None:
    """The new process: computes its cells one after the other and sends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one that writes is interrupted, and ends this one
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    try:
        compute = prepare(given)
        for cell in cells:
            there.send((cell, compute(cell, there.send)))
        there.send(None)
    except (UsageError, Refused) as error:
        there.send(error)
    except Exception as error:  # noqa: BLE001 - told to the process that can report it
        there.send(RuntimeError(f"{type(error).__name__}: {error}"))


def end_with(parent: int) -> None:
    """End this process soon after ``parent`` has, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
