"""Processes: commands stopped by a signal, workers killed at random moments, forks of a process with imports."""

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import NamedTuple

import dask
import psutil

COMMAND = (sys.executable, "-m", "sparseoco")


class End(NamedTuple):
    """How a stopped command ended; `alive` are children that did not end."""

    code: int
    seconds: float
    said: str
    alive: list[psutil.Process]


def stop(arguments: list[str], number: signal.Signals, wait: Callable[[], bool], *, group: bool = False) -> End | None:
    """Run a command and send it a signal once it handles signals and `wait` returns true.

    None if it finished first. With `group`, all of its processes get the signal, as at Ctrl-C in a terminal.
    """
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not (heeds_stops(process.pid) and wait()):
            if process.poll() is not None:
                assert process.returncode == 0, process.communicate()[1]
                return None
            time.sleep(0.005)
        children = psutil.Process(process.pid).children(recursive=True)
        (os.killpg if group else os.kill)(process.pid, number)
        started = time.monotonic()
        _, said = process.communicate(timeout=60)
        seconds = time.monotonic() - started
    if process.returncode == 0:
        return None
    _, alive = psutil.wait_procs(children, timeout=5)
    return End(process.returncode, seconds, said, alive)


def heeds_stops(process: int) -> bool:
    """Whether a process has installed a handler for SIGTERM."""
    caught = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def after(seconds: float) -> Callable[[], bool]:
    """A function that returns whether so many seconds have passed since its first call."""
    first: list[float] = []

    def passed() -> bool:
        first.append(time.monotonic())
        return first[-1] >= first[0] + seconds

    return passed


# ----------------------------------------------------------------------------------------------------------------------
# Workers of this process, killed at random moments.


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something is true, for a minute at most."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def worker_processes(root: int | None = None) -> list[psutil.Process]:
    """The workers that nannies of a process keep alive, by default of this one."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(root).children(recursive=True):
            with suppress(psutil.Error):  # it has just died
                if "spawn_main" in " ".join(child.cmdline()):
                    found.append(child)
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Processes that are forks of one that has imported what they need: no second of imports for each.


_IMPORTED: list[str] = []


def forks_with(module: str) -> ForkServerContext:
    """Forks of a process that has imported this module, and those of other callers: there is one such process."""
    context = multiprocessing.get_context("forkserver")
    _IMPORTED.append(module)
    context.set_forkserver_preload(_IMPORTED)
    return context


@contextmanager
def forked_workers() -> Iterator[None]:
    """The worker processes of Dask are such forks, too."""
    forkserver.ensure_running()  # with the modules above, instead of those that Dask chooses
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield
