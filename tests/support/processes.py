"""Processes that are forks of one that has imported what they need: no second of imports for each."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

import dask

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
