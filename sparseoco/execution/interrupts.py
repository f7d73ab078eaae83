"""What a stop does to worker processes of our own.

A terminal sends Ctrl-C to all processes of a command. The workers do not hear it: this process ends them, at once, for
what they are at is found again by what it has committed.
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
    """A running event loop whose threads have SIGINT blocked, as then have the processes that they start."""
    resource_tracker.ensure_running()  # started with the first process, it would unblock the signal
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
def ended_at_once(cluster: LocalCluster) -> Iterator[None]:
    """Kill the worker processes of a cluster where it is stopped: closing, they would finish their kernels first."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # `Stopped`, or what a program around us makes of a signal (Prefect's is no error either)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # of what it leaves unfinished one sentence is said
        for nanny in set(cluster._created):  # `cluster.workers` has only those that have begun
            if isinstance(nanny, Nanny) and nanny.pid is not None:
                _kill(nanny, nanny.pid)
        raise


def _kill(nanny: Nanny, process: int) -> None:
    nanny.close_gracefully()  # else it would start another worker, and closing it would wait until that has begun
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
