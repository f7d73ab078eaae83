"""Calls as Dask tasks that may fail, be lost or run twice, with progress."""

import logging
import math
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from operator import add
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from distributed import Client, Future, KilledWorker, get_worker

from sparseoco.core.errors import SparseocoError, StorageError, error_text
from sparseoco.core.logs import RowsCallback, log_event
from sparseoco.execution.clusters import restart_workers
from sparseoco.storage.commit import remove_file
from sparseoco.storage.locations import Location, files_below, location
from sparseoco.storage.locks import is_intact

# ----------------------------------------------------------------------------------------------------------------------
# How far running tasks are: events from workers to the client, by name of the task's work.


TOPIC = "sparseoco-rows"
SECONDS = 0.5  # between two reports of a task


def task_reporter(names: Sequence[str], check: Callable[[], None] = lambda: None) -> RowsCallback:
    """For a task: reports to the client how many rows of these names are done; calls `check` every time."""
    worker, last = get_worker(), time.monotonic()

    def report(rows: int) -> None:
        nonlocal last
        check()
        if time.monotonic() - last > SECONDS:
            for name in names:
                worker.log_event(TOPIC, {"name": name, "rows": rows})
            last = time.monotonic()

    return report


@contextmanager
def task_reports(client: Client, reported: Callable[[str, int], None]) -> Iterator[None]:
    """Call `reported` with the name and the rows of every report; from another thread."""

    def receive(event: tuple[float, dict[str, Any]]) -> None:
        reported(event[1]["name"], event[1]["rows"])

    client.subscribe_topic(TOPIC, receive)
    try:
        yield
    finally:
        client.unsubscribe_topic(TOPIC)


# ----------------------------------------------------------------------------------------------------------------------
# The task pool: submits tasks to Dask workers, waits for them, retries them, and gives them up.
#
# A task is a function of paths and small values. It writes files or returns a small value, so it may run twice, and on
# any worker.


CHECK_SECONDS = 5.0  # between checks of the workers
LOST_SECONDS = 120.0  # without any worker, before the cluster counts as lost
TRIES = 5  # attempts at a task whose workers were killed more often than Dask allows: perhaps not because of the task
LOST = "The Dask cluster was lost during the computation: run again to resume."
_last_check: WeakKeyDictionary[Client, float] = WeakKeyDictionary()

T = TypeVar("T")
Call = tuple[Callable[..., Any], *tuple[Any, ...]]
"""A function and its arguments."""


class TaskError(SparseocoError):
    """A task failed for a `reason` that may be specific to it: other tasks may succeed."""

    def __init__(self, failure: str, reason: str, *, code: str = "task-failed") -> None:
        super().__init__(f"{failure}: {reason}.", code=code)
        self.reason = reason


class Outcome(NamedTuple, Generic[T]):
    """How one attempt to run a task ended."""

    task: T
    future: Future
    seconds: float
    """Since it was submitted."""
    error: BaseException | None
    failure: str | None
    """Why the task was given up, or None if it finished, was split, is retried or was stopped."""

    @property
    def final(self) -> bool:
        """Whether the task has finished or was given up."""
        return self.error is None or self.failure is not None


class _Attempt(NamedTuple, Generic[T]):
    task: T
    number: int
    future: Future
    started: float


class TaskPool:
    """Tasks of one piece of work on a Dask cluster.

    While it waits, local workers that are gone for good are restarted, and a cluster without workers raises
    `SparseocoError` (code ``cluster-lost``).

    Parameters
    ----------
    client : distributed.Client
        Client of the cluster.
    failure : str
        The first part of the message of a `TaskError`, such as "A pass failed".
    """

    def __init__(self, client: Client, failure: str = "A task failed") -> None:
        self.client = client
        self.failure = failure
        self._present = time.monotonic()  # when there was a worker
        self._count: int | None = None

    def submit(
        self, function: Callable[..., Any], *arguments: Any, name: str | None = None, **placement: Any
    ) -> Future:
        """Start a task, named by its function unless `name` is given; `placement` as `Client.submit` takes it.

        Keys are unique: a client that still references a task, if only in the traceback of an old error, would return
        it instead of a new one with the same key; Dask counts killed workers by key; and runs may share a scheduler.
        """
        key = f"{(name or function.__name__).strip('_')}-{uuid.uuid4().hex}"
        return self.client.submit(function, *arguments, key=key, **placement)

    def result(self, future: Future) -> Any:
        """Wait for a task and return its result. Raises `TaskError` if it failed."""
        self._present = time.monotonic()
        self._check_workers(CHECK_SECONDS)
        while True:
            try:
                return future.result(timeout=CHECK_SECONDS)  # computed again if its worker died
            except TimeoutError as error:
                if future.status == "error":  # the task raised `TimeoutError`, or has just failed
                    raise self._error(future.exception() or error) from error
                self._check_workers()
            except CancelledError as error:
                raise SparseocoError(LOST, code="cluster-lost") from error
            except Exception as error:
                raise self._error(error) from error

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run one task and return its result. Raises `TaskError` if it failed."""
        (found,) = self.map(function, [arguments])
        return found

    def map(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Sequence[Any]],
        placed: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Any]:
        """Run a task for each tuple of arguments; return the results, in order. Raises `TaskError` if one failed.

        `placed` has the placement of each, as `submit` takes it.
        """
        results: dict[int, Any] = {}

        def start(i: int) -> Future:
            return self.submit(function, *arguments[i], **(placed[i] if placed else {}))

        for outcome in self.run(range(len(arguments)), start):
            self.check(outcome)
            if outcome.final:
                results[outcome.task] = self.result(outcome.future)
        return [results[i] for i in range(len(arguments))]

    def run_all(self, calls: Mapping[str, Call], progress: Callable[[int], None]) -> dict[str, TaskError]:
        """Run tasks that write files, by name, and return the errors of those that failed.

        `progress` is called with the number of tasks that have ended, starting with 0.
        """
        failures: dict[str, TaskError] = {}
        done = 0
        progress(done)
        for outcome in self.run(calls, lambda name: self.submit(*calls[name])):
            if outcome.error is not None and outcome.final:
                failures[outcome.task] = self._error(outcome.error)
            if outcome.final:
                done += 1
                progress(done)
        return failures

    def tree(self, futures: Sequence[Future]) -> Future:
        """The sum of results, computed on the workers in a balanced tree of fixed shape."""
        if len(futures) == 1:
            return futures[0]
        middle = len(futures) // 2
        return self.submit(add, self.tree(futures[:middle]), self.tree(futures[middle:]))

    def check(self, outcome: Outcome[Any]) -> None:
        """Raise the error of a task that was given up."""
        if outcome.failure is not None and outcome.error is not None:
            raise self._error(outcome.error)

    def run(
        self,
        tasks: Iterable[T],
        start: Callable[[T], Future],
        *,
        split: Callable[[T], Sequence[T]] = lambda task: (task,),
        tries: int = TRIES,
        deadline: float | None = None,
        stop: Callable[[], None] = lambda: None,
    ) -> Iterator[Outcome[T]]:
        """Run tasks in the given order; yields the outcome of every attempt as it ends.

        When the iteration ends, tasks that have not started are cancelled.

        Parameters
        ----------
        tasks : iterable
            Arguments of `start`.
        start : callable
            Submits a task, or a graph of tasks, and returns the future of the last one.
        split : callable
            Returns the parts of a failed task, which are run instead of it, or only the task if it cannot be split.
        tries : int
            Attempts at a task whose workers were killed; all but the first run alone, after all other tasks.
        deadline : float, optional
            `time.monotonic()` at which `stop` is called. From then on nothing is started, and failures are not final.
        stop : callable
            Tells running tasks to end early.
        """
        waiting = [(task, 1) for task in tasks]
        retries: list[tuple[T, int]] = []
        running: dict[str, _Attempt[T]] = {}
        ended: SimpleQueue[str] = SimpleQueue()
        self._present, stopped = time.monotonic(), False

        def watch(attempt: _Attempt[T]) -> None:
            running[attempt.future.key] = attempt
            attempt.future.add_done_callback(lambda future: ended.put(future.key))

        try:
            while waiting or running:
                remaining = math.inf if deadline is None or stopped else deadline - time.monotonic()
                if remaining <= 0.0:  # before tasks are started, too: a quick one could end before the next check
                    stopped = True
                    stop()
                for task, number in waiting:
                    watch(_Attempt(task, number, start(task), time.monotonic()))
                waiting.clear()
                try:
                    key = ended.get(timeout=max(0.0, min(remaining, CHECK_SECONDS)))
                except Empty:
                    self._check_workers()
                    continue
                self._check_workers(CHECK_SECONDS)
                attempt = running.pop(key)
                task, number, future, started = attempt
                status = future.status
                if status == "cancelled":
                    raise SparseocoError(LOST, code="cluster-lost")
                if status not in ("finished", "error"):  # the result was lost with its worker: Dask computes it again
                    watch(attempt)
                    continue
                error = future.exception() if status == "error" else None
                failure = None
                if error is not None and not stopped:
                    failure, parts = failure_reason(error), split(task)
                    if len(parts) > 1:
                        failure = None
                        waiting += [(part, 1) for part in parts]
                    elif isinstance(error, KilledWorker) and number < tries:
                        failure = None
                        log_event("cluster", "task retried", level=logging.WARNING, task=key, attempt=number)
                        retries.append((task, number + 1))
                yield Outcome(task, future, time.monotonic() - started, error, failure)
                if retries and not (waiting or running or stopped):
                    waiting.append(retries.pop())
        finally:
            for attempt in running.values():
                attempt.future.release()

    def _check_workers(self, seconds: float = 0.0) -> None:
        """Restart workers whose nannies gave up, if the last check is so long ago, even if results arrive all the time.

        Dask does not restart a worker that dies on start. Raises `SparseocoError` if there has been no worker for
        `LOST_SECONDS`.
        """
        now = time.monotonic()
        if now - _last_check.setdefault(self.client, now) < seconds:
            return
        _last_check[self.client] = now
        count = restart_workers(self.client)
        if count != self._count:
            lost = self._count is not None and count < self._count
            level = logging.WARNING if lost else logging.INFO
            log_event("cluster", "workers lost" if lost else "workers connected", level=level, workers=count)
            self._count = count
        if count:
            self._present = time.monotonic()
        elif time.monotonic() - self._present > LOST_SECONDS:
            raise SparseocoError(
                "The Dask cluster has lost all its workers: start some, and run again to resume.", code="cluster-lost"
            )

    def _error(self, error: BaseException) -> TaskError:
        """The `TaskError` of a failed task. Raises errors that would fail every task (see `failure_reason`)."""
        code = {KilledWorker: "worker-killed", MemoryError: "out-of-memory"}.get(type(error), "task-failed")
        code = error.code if isinstance(error, TaskError) else code
        failure = TaskError(self.failure, failure_reason(error), code=code)
        failure.__cause__ = error
        return failure


class SubmittedTask(NamedTuple):
    """A task of a pool, with the interface of `concurrent.futures.Future`."""

    pool: TaskPool
    future: Future

    def result(self) -> Any:
        """Wait for it and return its result (see `TaskPool.result`)."""
        return self.pool.result(self.future)

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self.future.done())


def failure_reason(error: BaseException) -> str:
    """Why a task failed, in a sentence; errors that would fail every task are raised instead."""
    if isinstance(error, TaskError):
        return error.reason
    if isinstance(error, SparseocoError):
        raise error
    if isinstance(error, OSError):  # of a file system or a connection: may be temporary
        raise StorageError(
            f"An error occurred on a worker: {error_text(error)}. Run again to resume.", code="io-error"
        ) from error
    if isinstance(error, KilledWorker):
        return "its worker was killed each time it was tried, most likely for lack of memory"
    if isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error}"


# ----------------------------------------------------------------------------------------------------------------------
# Work files of runs that were killed: those that are damaged are removed, and computed again.


BATCH = 64  # files that a task reads


def remove_damaged(pool: TaskPool, folder: Location) -> int:
    """Remove the damaged files of a folder that a run resumes from; returns their number.

    Every file is read once, by tasks; the folder of a run that was not killed has none. Raises `StorageError` for a
    file that cannot be read now.
    """
    files = [str(path.resolve()) for path, _ in files_below(folder)]
    return sum(pool.map(_remove_damaged, [(files[i : i + BATCH],) for i in range(0, len(files), BATCH)]))


def _remove_damaged(paths: list[str]) -> int:
    damaged = [path for path in map(location, paths) if not is_intact(path)]
    for path in damaged:
        log_event("cluster", "damaged work file removed", level=logging.WARNING, file=str(path))
        remove_file(path)
    return len(damaged)
