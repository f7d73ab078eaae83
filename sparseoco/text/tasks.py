"""Where steps run: on a Dask cluster, or in threads of this process. A step is a function of paths and small values."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Protocol

from sparseoco.core.errors import SparseocoError


class Result(Protocol):
    """What a submitted step will give."""

    def result(self) -> Any:
        """Wait for it; raises what the step raised."""


class Tasks:
    """Submits steps to `submit`, `width` of which run at once, and remembers them.

    `here` says that they run in this very process, `on_machine` that they run on this machine at least.
    """

    def __init__(self, submit: Callable[..., Any], width: int, *, here: bool, on_machine: bool) -> None:
        self._submit = submit
        self.width = width
        self.here = here
        self.on_machine = on_machine
        self.submitted: list[Any] = []

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Result:
        """Start `function(*arguments)` somewhere."""
        future: Result = self._submit(function, *arguments)
        self.submitted.append(future)
        return future


@contextmanager
def open_tasks(client: Any = None) -> Iterator[Tasks]:
    """Tasks on a `distributed.Client`, or on as many threads as there are processors (the loops release the GIL).

    On an error whatever has not begun is cancelled; a worker that keeps dying becomes a `SparseocoError`.
    """
    if client is None:
        width = len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(width, thread_name_prefix="ingest") as pool:
            tasks = Tasks(pool.submit, width, here=True, on_machine=True)
            try:
                yield tasks
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return
    from distributed import KilledWorker, LocalCluster

    from sparseoco.execution.pool import Awaited, send

    def submit(function: Callable[..., Any], *arguments: Any) -> Any:
        return Awaited(client, send(client, function.__name__.strip("_"), function, *arguments))

    cores = client.ncores()
    here = all(address.startswith("inproc://") for address in cores)
    own = here or isinstance(client.cluster, LocalCluster)
    tasks = Tasks(submit, max(1, sum(cores.values())), here=here, on_machine=own)
    try:
        yield tasks
    except KilledWorker as error:
        raise SparseocoError(
            "A worker died several times on one step, perhaps for want of memory: keep fewer terms (min_df, "
            "max_features, hash_bits), lower shard_bytes, or give workers more."
        ) from error
    finally:
        client.cancel([awaited.future for awaited in tasks.submitted if not awaited.future.done()])
