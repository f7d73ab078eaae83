"""Dask clusters: in this process, in worker processes, or at the address of a scheduler; and tasks on them.

Tasks are calls that may fail, be lost or run twice.
"""

import asyncio
import logging
import math
import os
import shutil
import signal
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from operator import add
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import dask
import distributed.core
from distributed import Client, Future, KilledWorker, LocalCluster, Nanny, Security, get_worker
from distributed.comm import connect as open_connection
from distributed.core import Status
from distributed.system import MEMORY_LIMIT
from distributed.utils import LoopRunner

from sparseoco.core.errors import InputError, SparseocoError, StorageError, error_text
from sparseoco.core.logs import RowsCallback, log_event
from sparseoco.execution.options import ACROSS_HOSTS, ONE_THREAD
from sparseoco.execution.options import ClusterOptions as ClusterOptions
from sparseoco.storage.commit import is_intact, remove_file
from sparseoco.storage.locations import Location, files_below, location

CONNECT_SECONDS = 15
WORKERS_SECONDS = 60  # to wait for the first worker, which may be starting
NEVER = "1000 days"
LOOPBACK = "127.0.0.1:0"  # any free port, reached from this machine only
POLL_SECONDS = 0.2  # between checks whether workers have started


@contextmanager
def connect(options: ClusterOptions, scratch: Path) -> Iterator[Client]:
    """Connect to a cluster, or start one that is closed at the end.

    Parameters
    ----------
    options : ClusterOptions
    scratch : Path
        Folder of workers on this machine, for one process at a time.

    Yields
    ------
    distributed.Client

    Raises
    ------
    InputError
        No scheduler answers at the address.
    SparseocoError
        Workers cannot be started.
    """
    if options.scheduler is None:
        with _local_cluster(options, scratch) as client:
            yield client
    else:
        with dask.config.set(ACROSS_HOSTS), _client_at(options.scheduler) as client:
            yield client


@contextmanager
def _local_cluster(options: ClusterOptions, scratch: Path) -> Iterator[Client]:
    """A cluster on this machine, in this process or in worker processes."""
    if options.workers is None:
        shape: dict[str, Any] = {
            "processes": False,
            "n_workers": 1,
            "threads_per_worker": options.threads or len(os.sched_getaffinity(0)),
            # Only sizes blocks of columns; the process itself is never paused.
            "memory_limit": options.memory or 0,
        }
    else:
        shape = {
            "processes": True,
            "n_workers": options.workers,
            "threads_per_worker": options.threads or 1,
            "memory_limit": options.memory or "auto",
            "host": "127.0.0.1",
            # Other users of this machine can connect to loopback: without the key of the run they are refused.
            "security": Security.temporary(),
        }
    # Dask logs workers that start and stop, and messages that are unread when they close.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    workspaces = scratch / "dask-scratch-space"  # Dask's name; files of a killed run are useless
    settings = {
        "temporary-directory": str(scratch),  # of the scheduler; by default it leaves a folder where the system's are
        "distributed.worker.use-file-locking": False,
        "distributed.scheduler.work-stealing": True,
        "distributed.nanny.pre-spawn-environ": ONE_THREAD,
        "distributed.comm.retry.count": 3,
        # By default Dask closes a nanny whose worker has been gone for 15 s, just when it starts another one; that one
        # gets a task and is killed, which counts against the task. `restart_workers` replaces nannies that gave up.
        "distributed.deploy.lost-worker-timeout": NEVER,
        "distributed.worker.memory.target": False,  # workers keep nothing that could be spilled
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False if options.workers is None else 0.95,
        # Dask's HTTP servers cannot be turned off. Without pages they show other users no logs and tracebacks.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
        # Dask looks at the stack of every thread a hundred times a second, for those pages.
        "distributed.worker.profile.enabled": False,
    }
    shutil.rmtree(workspaces, ignore_errors=True)
    try:
        with (
            dask.config.set(settings),
            _signal_free_loop() as loop,
            _start(loop=loop, local_directory=str(scratch), **shape) as cluster,
            Client(cluster, set_as_default=False) as client,
            _kill_workers_when_stopped(cluster),
        ):
            yield client
    finally:  # after an interrupt, too
        shutil.rmtree(workspaces, ignore_errors=True)
        with suppress(OSError):
            scratch.rmdir()
        with suppress(AttributeError):  # this cache of Dask would keep schedulers and workers that are closed
            distributed.core._expects_comm.cache_clear()


def _start(**shape: Any) -> LocalCluster:
    try:
        return LocalCluster(
            dashboard_address=LOOPBACK,
            worker_dashboard_address=LOOPBACK,
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            **shape,
        )
    except RuntimeError as error:  # Dask does not restart a worker that is killed before it has started
        raise SparseocoError(f"The worker processes could not be started: {error}", code="no-workers") from error


# ----------------------------------------------------------------------------------------------------------------------
# Signals and local worker processes.
#
# A terminal sends Ctrl-C to all processes of a command. Workers ignore it: this process kills them, and a later run
# resumes from what they have committed.


@contextmanager
def _signal_free_loop() -> Iterator[Any]:
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
def _kill_workers_when_stopped(cluster: LocalCluster) -> Iterator[None]:
    """Kill the workers of a cluster when a signal stops this process: closing waits for their kernels."""
    try:
        yield
    except Exception:
        raise
    except BaseException:  # `Stopped`, or the exception of an enclosing program (Prefect's is not an Exception)
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # only our own message about the stop
        for nanny in set(cluster._created):  # `cluster.workers` has only those that have started
            if isinstance(nanny, Nanny) and nanny.pid is not None:
                process = nanny.pid
                nanny.close_gracefully()  # otherwise it would start another worker, and closing would wait for it
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        raise


# ----------------------------------------------------------------------------------------------------------------------
# A scheduler that was started outside.


def _client_at(address: str) -> Client:
    try:
        asyncio.run(_check_scheduler(address))  # a client that fails to connect needs another 30 s to close
        return Client(address, set_as_default=False)  # with the long timeouts of `ACROSS_HOSTS`
    except (TypeError, OSError, TimeoutError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, TypeError) or cause is not None:  # without certificates, or with others
            raise InputError(
                f"The scheduler at {address} and this client do not accept each other's certificates: set them in "
                "Dask's configuration (distributed.comm.tls.ca-file, distributed.comm.tls.client.cert and .key), "
                "signed by one authority.",
                code="scheduler-certificates",
            ) from error
        raise InputError(
            f"No Dask scheduler answers at {address} within {CONNECT_SECONDS} s.", code="no-scheduler"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{address} is not the address of a Dask scheduler (tcp://HOST:PORT or tls://HOST:PORT).",
            code="scheduler-address",
        ) from error


async def _check_scheduler(address: str) -> None:
    tls = Security().get_connection_args("client") if address.startswith("tls") else {}
    comm = await open_connection(address, timeout=CONNECT_SECONDS, **tls)
    await comm.close()


# ----------------------------------------------------------------------------------------------------------------------
# The workers of a cluster.


def scheduler_workers(client: Client) -> dict[str, Any]:
    """The scheduler's description of each worker, by address.

    Queried from the scheduler: the copy of the client (`Client.scheduler_info`) is overwritten every two seconds by a
    summary without workers. Raises `SparseocoError` if the scheduler does not answer.
    """
    try:
        found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    except OSError as error:
        raise SparseocoError("The Dask scheduler does not answer: run again to resume.", code="cluster-lost") from error
    return found


def restart_workers(client: Client) -> int:
    """Restart the workers of a local cluster whose nannies gave up; returns how many workers there were before.

    0 while the scheduler cannot be reached.
    """
    try:
        count, cluster = len(scheduler_workers(client)), client.cluster
    except SparseocoError:
        return 0
    if isinstance(cluster, LocalCluster) and count < len(cluster.worker_spec):
        client.sync(_replace_nannies, cluster)
    return count


async def _replace_nannies(cluster: LocalCluster) -> None:
    for name, nanny in list(cluster.workers.items()):
        if nanny.status in (Status.closed, Status.failed):
            del cluster.workers[name]
    cluster.scale(len(cluster.worker_spec))


class WorkerShape(NamedTuple):
    """Concurrent tasks in the whole cluster, bytes of memory for each of them, tasks per process."""

    tasks: int
    memory: int
    threads: int


def worker_shape(client: Client) -> WorkerShape:
    """The shape of a running cluster.

    A worker without a limit gets its share of the memory of the machine. Raises `SparseocoError` if the cluster has no
    worker within `WORKERS_SECONDS`.
    """
    end = time.monotonic() + WORKERS_SECONDS
    while not (workers := scheduler_workers(client)):
        if time.monotonic() > end:
            raise SparseocoError(
                f"The Dask cluster has no worker after {WORKERS_SECONDS} s: start some and run again.",
                code="no-workers",
            )
        restart_workers(client)
        time.sleep(POLL_SECONDS)
    limits = [(worker["memory_limit"] or MEMORY_LIMIT) // worker["nthreads"] for worker in workers.values()]
    threads = [worker["nthreads"] for worker in workers.values()]
    return WorkerShape(sum(threads), min(limits), max(threads))


def placements(client: Client, count: int) -> list[dict[str, Any]]:
    """Arguments of `Client.submit` that place each of `count` tasks on a host, the same in every call.

    Consecutive tasks share a thread, so that a host reads the same part of the data in every pass; an idle host may
    take any task. Placed by host, not by worker: when all workers are dead for a moment, Dask keeps tasks of a worker
    waiting for its address.
    """
    workers = scheduler_workers(client)
    slots = [workers[address]["host"] for address in sorted(workers) for _ in range(workers[address]["nthreads"])]
    if not slots:  # all workers have just died
        return [{}] * count
    return [{"workers": [slots[i * len(slots) // count]], "allow_other_workers": True} for i in range(count)]


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

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run one task and return its result. Raises `TaskError` if it failed."""
        found: T = self.map(function, [arguments])[0]
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
