"""The steps of a job over text as Dask tasks or threads."""

import ctypes
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import pyarrow as pa

from sparseoco.core.errors import SparseocoError
from sparseoco.core.logs import ProgressCallback
from sparseoco.storage.locations import Location
from sparseoco.text.options import TextOptions

# ----------------------------------------------------------------------------------------------------------------------
# Settings of the C library's memory allocator.


# Names and numbers of <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
RETAINED_BYTES = 1 << 30


@cache
def retain_freed_memory() -> None:
    """Let glibc keep up to `RETAINED_BYTES` of freed memory; without effect on other C libraries.

    Every split needs buffers of the same sizes. Returning them to the system and requesting them again would cost a
    tenth of the time of an ingest in page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in ((M_MMAP_THRESHOLD, RETAINED_BYTES), (M_TRIM_THRESHOLD, RETAINED_BYTES), (M_ARENA_MAX, 1)):
            mallopt(option, value)


def call_and_release(step: Callable[..., Any], *arguments: Any) -> Any:
    """Run a step of an ingest and return freed memory to the system: the process of a worker has a limit."""
    try:
        return step(*arguments)
    finally:
        pa.default_memory_pool().release_unused()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


# ----------------------------------------------------------------------------------------------------------------------
# Run the steps of ingest on a Dask cluster, or in threads of this process.


class Result(Protocol):
    """The result of a submitted step."""

    def result(self) -> Any:
        """Wait for it. Raises the error of the step."""

    def done(self) -> bool:
        """Whether it has ended."""


class Tasks(NamedTuple):
    """Runs steps: functions of paths and small values."""

    submit: Callable[..., Result]
    width: int
    """Number of steps that run at once."""
    on_machine: bool
    """Whether they run on this machine."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Result:
        """Start `function(*arguments)`."""
        return self.submit(function, *arguments)

    def in_order(self, calls: Iterable[Sequence[Any]], ahead: int) -> Iterator[Any]:
        """The results of calls, each a function and its arguments, in order, with at most `ahead` of them pending.

        An error of the iteration over `calls` is raised after the results of the calls before it.
        """
        pending: deque[Result] = deque()
        remaining = iter(calls)
        failure: SparseocoError | None = None
        while failure is None:
            try:
                pending.append(self(*next(remaining)))
            except StopIteration:
                break
            except SparseocoError as error:
                failure = error
            while pending and (len(pending) > ahead or pending[0].done()):
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failure is not None:
            raise failure


@contextmanager
def open_tasks(client: Any = None, failure: str = "A step of ingest failed") -> Iterator[Tasks]:
    """Tasks on a `distributed.Client`, or on one thread per processor (the kernels release the GIL).

    On an error, steps that have not started are cancelled. Raises `SparseocoError` for a step whose workers keep dying.
    """
    if client is not None:
        yield from _cluster_tasks(client, failure)
        return
    width = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(width, thread_name_prefix="ingest") as threads:
        try:
            yield Tasks(threads.submit, width, on_machine=True)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _cluster_tasks(client: Any, failure: str) -> Iterator[Tasks]:
    from distributed import Future, LocalCluster

    from sparseoco.execution.pool import SubmittedTask, TaskError, TaskPool

    pool = TaskPool(client, failure)
    submitted: WeakSet[Future] = WeakSet()  # a result is freed when nothing here waits for it

    def submit(function: Callable[..., Any], *arguments: Any) -> SubmittedTask:
        task = SubmittedTask(pool, pool.submit(call_and_release, function, *arguments, name=function.__name__))
        submitted.add(task.future)
        return task

    cores = client.ncores()
    in_process = all(address.startswith("inproc://") for address in cores)
    on_machine = in_process or isinstance(client.cluster, LocalCluster)
    try:
        yield Tasks(submit, max(1, sum(cores.values())), on_machine)
    except TaskError as error:
        if error.code != "worker-killed":
            raise
        raise SparseocoError(
            "A worker died several times on one step, perhaps for lack of memory: keep fewer terms (min_df, "
            "max_features, hash_bits), lower shard_bytes, or give workers more.",
            code="worker-killed",
        ) from error
    finally:
        client.cancel([future for future in submitted if not future.done()])


# ----------------------------------------------------------------------------------------------------------------------
# The context that the steps over one text share.


TASKS = 16  # of each worker at least, before a task takes several splits
TASK_BYTES = 128 << 20  # of the splits of one task


class TextJob(NamedTuple):
    """Folders, options and tasks of an ingest, or of scoring.

    Parameters
    ----------
    out, staging : Location
        The folder of the results, and the folder for staging files.
    shard_bytes : int
        Raw text per shard.
    progress : callable
        Called with (step, done, total).
    tasks : Tasks
        Runs the steps.
    """

    out: Location
    staging: Location
    options: TextOptions
    shard_bytes: int
    progress: ProgressCallback
    tasks: Tasks

    def splits_per_task(self, splits: int) -> int:
        """How many of so many splits a task takes, one after the other: the client sends fewer tasks."""
        return max(1, min(TASK_BYTES // self.shard_bytes, splits // (self.tasks.width * TASKS)))

    def once(self, path: Location, step: Callable[..., None], *arguments: Any) -> Result:
        """Start `step(path, *arguments)`, which writes the file `path`, unless an earlier run did."""
        return self.tasks(_run_once, path, step, *arguments)

    def wait(self, step: str, results: Sequence[Result]) -> list[object]:
        """The results of submitted tasks, with progress."""
        values = []
        for number, result in enumerate(results, 1):
            values.append(result.result())
            self.progress(step, number, len(results))
        return values


def _run_once(path: Location, step: Callable[..., None], *arguments: Any) -> None:
    if not path.is_file():
        step(path, *arguments)
