"""Sending tasks and waiting for them: workers are looked after, and what a task failed of becomes a sentence."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import dask
from distributed import Client, Future, KilledWorker

from sparseoco.core.errors import SparseocoError, StorageError, error_text
from sparseoco.core.logs import log_event
from sparseoco.execution.clusters import PATIENCE, start_again

WATCH_SECONDS = 5.0  # between two looks at whether there are workers, where nothing comes
LOST_SECONDS = 120.0
_looked: WeakKeyDictionary[Client, float] = WeakKeyDictionary()  # when each client's workers were looked after last
TRIES = 5  # of what workers died of more often than Dask allows: some die of other things
LOST = "The Dask cluster was lost while it worked; run again to go on."

Call = tuple[Callable[..., Any], *tuple[Any, ...]]
"""A function and what it is called with."""


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
        self._last: int | None = None

    def look(self) -> None:
        """Start workers of our own again whose keepers gave up: one that dies at once is not restarted by Dask.

        Raises `SparseocoError` if there has been no worker for `LOST_SECONDS`, or as long as one may stand in a queue:
        nothing would ever come.
        """
        there = start_again(self._client)
        if there != self._last:
            lost = self._last is not None and there < self._last
            level = logging.WARNING if lost else logging.INFO
            log_event("cluster", "workers lost" if lost else "workers there", level=level, workers=there)
            self._last = there
        if there:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > dask.config.get(PATIENCE, LOST_SECONDS):
            raise SparseocoError("The Dask cluster has lost all its workers: start some, and run again to go on.")


def send(client: Client, name: str, function: Callable[..., Any], *arguments: Any, **place: Any) -> Future:
    """Start `function(*arguments)` on a worker; `place` is where, as `Client.submit` takes it.

    No two tasks have one key, whatever their names: a client that still holds a task, if only in the frames of an error
    that nobody looks at any more, would give it instead of a new one of its key, with what it failed of; Dask counts
    the deaths of workers by key; and runs may share a scheduler.
    """
    return client.submit(function, *arguments, key=f"{name}-{uuid.uuid4().hex}", **place)


class Awaited(NamedTuple):
    """A task whose workers are looked after while its result is waited for."""

    client: Client
    future: Future

    def result(self) -> Any:
        """What the task gives. Raises what it raised, `SparseocoError` if the cluster is lost."""
        workers = Workers(self.client)
        if time.monotonic() - _looked.setdefault(self.client, time.monotonic()) > WATCH_SECONDS:
            _looked[self.client] = time.monotonic()
            start_again(self.client)  # where every result comes soon, nobody would miss a worker that is gone
        while True:
            try:
                return self.future.result(timeout=WATCH_SECONDS)  # a dead worker's is made again
            except TimeoutError:
                if self.future.status == "error":  # the task's own, or it failed this very moment
                    return self.future.result()
                workers.look()
            except CancelledError as error:
                raise SparseocoError(LOST) from error


def await_result(client: Client, future: Future, what: str) -> Any:
    """What a task gives; whatever it failed of is a `TaskError` that begins with `what`: "A pass failed"."""
    try:
        return Awaited(client, future).result()
    except Exception as error:
        raise TaskError(what, failure_reason(error)) from error


def run_tasks(client: Client, calls: Mapping[str, Call], ended: Callable[[str], None]) -> dict[str, BaseException]:
    """Run tasks, by name, that leave files and give nothing; tell each that has `ended`, and give what some failed of.

    Those whose workers died are tried again, up to `TRIES` times. Raises `SparseocoError` if the cluster is lost.
    """
    failed: dict[str, BaseException] = {}
    left, attempt = dict(calls), 0
    while left:
        attempt += 1
        killed = {}
        for name, error in _outcomes(client, left):
            if isinstance(error, KilledWorker) and attempt < TRIES:
                log_event("cluster", "task tried again", level=logging.WARNING, task=name, attempt=attempt)
                killed[name] = calls[name]
                continue
            if error is not None:
                failed[name] = error
            ended(name)
        left = killed
    return failed


def _outcomes(client: Client, calls: Mapping[str, Call]) -> Iterator[tuple[str, BaseException | None]]:
    """(name, what it failed of) of tasks as they end."""
    workers = Workers(client)
    came: SimpleQueue[str] = SimpleQueue()
    running: dict[str, tuple[str, Future]] = {}
    for name, call in calls.items():
        future = send(client, name, *call)
        running[future.key] = name, future
    for _, future in running.values():
        future.add_done_callback(lambda future: came.put(future.key))
    while running:
        try:
            name, future = running.pop(came.get(timeout=WATCH_SECONDS))
        except Empty:
            workers.look()
            continue
        if future.status not in ("finished", "error"):
            raise SparseocoError(LOST)
        yield name, future.exception() if future.status == "error" else None


def failure_reason(error: BaseException) -> str:
    """A sentence for a task that failed; errors that every task would meet are raised instead."""
    if isinstance(error, TaskError):
        return error.reason
    if isinstance(error, SparseocoError):
        raise error
    if isinstance(error, OSError):  # of a file system or a connection: the next run may not meet it
        raise StorageError(f"A worker met an error: {error_text(error)}. Run again to go on.") from error
    if isinstance(error, KilledWorker):
        return "its worker was killed each time it was tried, most likely for want of memory"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error}"
