"""Run the steps of ingest on a Dask cluster, or in threads of this process."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from sparseoco.core.errors import SparseocoError


class Result(Protocol):
    """The result of a submitted step."""

    def result(self) -> Any:
        """Wait for it. Raises the error of the step."""


class Tasks(NamedTuple):
    """Runs steps: functions of paths and small values."""

    submit: Callable[..., Result]
    width: int
    """Number of steps that run at once."""
    in_process: bool
    """Whether they run in this process."""
    on_machine: bool
    """Whether they run on this machine."""

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Result:
        """Start `function(*arguments)`."""
        return self.submit(function, *arguments)


@contextmanager
def open_tasks(client: Any = None) -> Iterator[Tasks]:
    """Tasks on a `distributed.Client`, or on one thread per processor (the kernels release the GIL).

    On an error, steps that have not started are cancelled. Raises `SparseocoError` for a step whose workers keep dying.
    """
    if client is not None:
        yield from _cluster_tasks(client)
        return
    width = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(width, thread_name_prefix="ingest") as threads:
        try:
            yield Tasks(threads.submit, width, in_process=True, on_machine=True)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def _cluster_tasks(client: Any) -> Iterator[Tasks]:
    from distributed import LocalCluster

    from sparseoco.execution.pool import SubmittedTask, TaskError, TaskPool

    pool = TaskPool(client, "A step of ingest failed")
    submitted: list[SubmittedTask] = []

    def submit(function: Callable[..., Any], *arguments: Any) -> SubmittedTask:
        submitted.append(SubmittedTask(pool, pool.submit(function, *arguments)))
        return submitted[-1]

    cores = client.ncores()
    in_process = all(address.startswith("inproc://") for address in cores)
    on_machine = in_process or isinstance(client.cluster, LocalCluster)
    try:
        yield Tasks(submit, max(1, sum(cores.values())), in_process, on_machine)
    except TaskError as error:
        if error.code != "worker-killed":
            raise
        raise SparseocoError(
            "A worker died several times on one step, perhaps for lack of memory: keep fewer terms (min_df, "
            "max_features, hash_bits), lower shard_bytes, or give workers more.",
            code="worker-killed",
        ) from error
    finally:
        client.cancel([task.future for task in submitted if not task.future.done()])
