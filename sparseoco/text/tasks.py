"""Run the steps of ingest on a Dask cluster, or in threads of this process."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

from sparseoco.core.errors import SparseocoError
from sparseoco.text.counting.allocator import call_and_release


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
