"""Waiting for tasks: workers are looked after meanwhile, and what a task failed of becomes a sentence."""

import time
from typing import Any

from distributed import Client, Future, KilledWorker, LocalCluster

from sparseoco.errors import SparseocoError

WATCH_SECONDS = 5.0  # between two looks at whether there are workers, where nothing comes
LOST_SECONDS = 120.0


class TaskError(SparseocoError):
    """A task that could not be run for a `reason` that may be its own: others need not fail of it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}.")
        self.reason = reason


class Workers:
    """Looks after the workers while results are waited for."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._seen = time.monotonic()

    def look(self) -> None:
        """Start workers of our own again whose keepers gave up: one that dies at once is not restarted by Dask.

        Raises `SparseocoError` if there has been no worker for `LOST_SECONDS`: nothing would ever come.
        """
        there = len(self._client.scheduler_info(n_workers=-1)["workers"])
        cluster = self._client.cluster
        if isinstance(cluster, LocalCluster) and there < len(cluster.worker_spec):
            cluster.scale(len(cluster.worker_spec))
        if there:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > LOST_SECONDS:
            raise SparseocoError("The Dask cluster has lost all its workers: start some, and run again to go on.")


def result_of(client: Client, future: Future, what: str) -> Any:
    """What a task gives. `what` begins the sentence of an error: "A pass failed".

    Raises the task's own `SparseocoError`, `TaskError` for anything else that it failed of, `SparseocoError` if the
    cluster is lost.
    """
    workers = Workers(client)
    while True:
        try:
            error = future.exception(timeout=WATCH_SECONDS)
            if error is not None:
                raise TaskError(what, reason_of(error)) from error
            if future.status != "finished":
                raise SparseocoError("The Dask cluster was lost while it worked; run again to go on.")
            return future.result(timeout=WATCH_SECONDS)  # its worker may have died since: then it is made again
        except TimeoutError:
            workers.look()


def reason_of(error: BaseException) -> str:
    """A sentence for a task that failed; errors that every task would meet are raised instead."""
    if isinstance(error, TaskError):
        return error.reason
    if isinstance(error, SparseocoError):
        raise error
    if isinstance(error, KilledWorker):
        return "its worker was killed each time it was tried, most likely for want of memory"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error}"
