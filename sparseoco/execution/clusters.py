"""Dask clusters: in this process, in worker processes, or at the address of a scheduler."""

import asyncio
import logging
import os
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NamedTuple

import dask
import distributed.core
from distributed import Client, LocalCluster, Nanny, Security
from distributed.comm import connect as open_connection
from distributed.core import Status
from distributed.system import MEMORY_LIMIT
from distributed.utils import LoopRunner

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.execution.options import ACROSS_HOSTS, ONE_THREAD
from sparseoco.execution.options import ClusterOptions as ClusterOptions

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
                _kill(nanny, nanny.pid)
        raise


def _kill(nanny: Nanny, process: int) -> None:
    nanny.close_gracefully()  # otherwise it would start another worker, and closing would wait for it
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


# ----------------------------------------------------------------------------------------------------------------------
# A scheduler that was started outside.


def _client_at(address: str) -> Client:
    try:
        asyncio.run(_check_scheduler(address))  # a client that fails to connect needs another 30 s to close
        return Client(address, set_as_default=False)  # with the long timeouts of `ACROSS_HOSTS`
    except (TypeError, OSError, TimeoutError) as error:
        if isinstance(error, TypeError) or _is_tls_error(error):  # without certificates, or with others
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


def _is_tls_error(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


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
