"""Dask clusters: in this process, in worker processes, at an address, in a batch queue or on Kubernetes."""

import asyncio
import logging
import os
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import dask
import distributed.core
from distributed import Client, LocalCluster, Security
from distributed.comm import connect as open_connection
from distributed.core import Status
from distributed.system import MEMORY_LIMIT

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.execution.jobs import job_cluster, kill_workers_when_stopped, kubernetes_cluster, signal_free_loop
from sparseoco.execution.options import ACROSS_HOSTS, NO_PAGES, ONE_THREAD
from sparseoco.execution.options import ClusterOptions as ClusterOptions

CONNECT_SECONDS = 15
LOCAL_TRIES = 4  # multiple of CONNECT_SECONDS to wait for workers on this machine, which are starting
NEVER = "1000 days"
PATIENCE = "sparseoco.patience"  # key of Dask's configuration: seconds without any worker until the cluster is lost
LOOPBACK = "127.0.0.1:0"  # any free port, reached from this machine only
POLL_SECONDS = 0.2  # between checks whether workers have started
OTHERS_SECONDS = 60  # to wait for the other workers, before work is divided among those that have started

_shared: dict[str, Client] = {}  # clients of jobs or pods inside `shared_cluster`, by their options


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
        No scheduler answers at the address, or a package or command is missing.
    SparseocoError
        Workers cannot be started.
    """
    shared = _shared.get(options.model_dump_json())
    if shared is not None and shared.status == "running":
        yield shared
        return
    match options.where:
        case "local":
            cluster = _local_cluster(options, scratch)
        case "address":
            cluster = _cluster_at(str(options.scheduler))
        case "slurm" | "pbs":
            cluster = _once_started(job_cluster(options, scratch), options)
        case "kubernetes":
            cluster = _once_started(kubernetes_cluster(options), options)
    with cluster as client:
        yield client


@contextmanager
def shared_cluster(options: ClusterOptions, scratch: Path) -> Iterator[None]:
    """Inside, every `connect` with these options uses the same jobs or pods, which are queued once.

    Other kinds of clusters are not shared. Raises `SparseocoError`.
    """
    if options.where not in ("slurm", "pbs", "kubernetes"):
        yield
        return
    with connect(options, scratch) as client:
        key = options.model_dump_json()
        _shared[key] = client
        try:
            yield
        finally:
            del _shared[key]


@contextmanager
def _once_started(cluster: AbstractContextManager[Client], options: ClusterOptions) -> Iterator[Client]:
    """A client of jobs or pods, once the first has started and the others have had some time.

    Raises `SparseocoError` if none starts within the time that the options give.
    """
    with cluster as client, dask.config.set({PATIENCE: options.wait}):
        if not _wait_for(client, 1, options.wait):
            raise SparseocoError(
                f"No worker has started within {options.wait:g} s: the queue is long, or no node has the resources.",
                code="no-workers",
            )
        _wait_for(client, options.workers or 1, OTHERS_SECONDS)
        yield client


def _wait_for(client: Client, count: int, seconds: float) -> bool:
    """Wait for `count` workers; False on a timeout. Raises `SparseocoError` if the scheduler does not answer."""
    end = time.monotonic() + seconds
    while len(scheduler_workers(client)) < count:  # Dask's method writes to what it reads of the cluster
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


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
        **NO_PAGES,
    }
    shutil.rmtree(workspaces, ignore_errors=True)
    try:
        with (
            dask.config.set(settings),
            signal_free_loop() as loop,
            _start(loop=loop, local_directory=str(scratch), **shape) as cluster,
            Client(cluster, set_as_default=False) as client,
            kill_workers_when_stopped(cluster),
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


@contextmanager
def _cluster_at(address: str) -> Iterator[Client]:
    with dask.config.set(ACROSS_HOSTS), _client_at(address) as client:
        yield client


def _client_at(address: str) -> Client:
    try:
        asyncio.run(_check_scheduler(address))  # a client that fails to connect needs another 30 s to close
        return Client(address, set_as_default=False)  # with the long timeouts of `ACROSS_HOSTS`
    except TypeError as error:
        raise InputError(
            f"{address} needs certificates: set them in Dask's configuration (distributed.comm.tls.ca-file, "
            "distributed.comm.tls.client.cert and .key).",
            code="scheduler-certificates",
        ) from error
    except (OSError, TimeoutError) as error:
        if _is_tls_error(error):
            raise InputError(
                f"The scheduler at {address} and this client do not accept each other's certificates; both must be "
                "signed by the authority in distributed.comm.tls.ca-file.",
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
    worker within `CONNECT_SECONDS`.
    """
    workers: dict[str, Any] = {}
    tries = LOCAL_TRIES if isinstance(client.cluster, LocalCluster) else 1
    while not workers:
        restart_workers(client)
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            tries -= 1
            if tries:
                continue
            raise SparseocoError(
                f"The Dask cluster has no worker after {CONNECT_SECONDS} s: start some and run again.",
                code="no-workers",
            ) from error
        workers = scheduler_workers(client)  # empty if the last one has just died
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
