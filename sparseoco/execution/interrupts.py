"""Signals and worker processes.

A terminal sends Ctrl-C to all processes of a command. Workers ignore it: this process kills them, and a later run
resumes from what they have committed.
"""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import Any

from distributed import LocalCluster, Nanny
from distributed.utils import LoopRunner


@contextmanager
def signal_free_loop() -> Iterator[Any]:
    """A running event loop whose threads, and the processes that they start, block SIGINT."""
    resource_tracker.ensure_running()  # started later, with the first process, it would unblock the signal
    runner = LoopRunner()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield runner.loop
    finally:
        runner.stop()


@contextmanager
def kill_workers_when_stopped(cluster: LocalCluster) -> Iterator[None]:
    """Kill the workers of a cluster when a signal stops this process: closing waits for their kernels."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # `Stopped`, or the exception of an enclosing program (Prefect's is not an Exception)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # only our own message about the stop
        for nanny in set(cluster._created):  # `cluster.workers` has only those that have started
            if isinstance(nanny, Nanny) and nanny.pid is not None:
                _kill(nanny, nanny.pid)
        raise


def _kill(nanny: Nanny, process: int) -> None:
    nanny.close_gracefully()  # otherwise it would start another worker, and closing would wait for it
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
