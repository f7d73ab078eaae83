"""Where Dask is: in this process, in worker processes of our own, or at an address."""

import asyncio
import logging
import os
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Security
from distributed.comm import connect as knock
from distributed.core import Status
from distributed.system import MEMORY_LIMIT

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.execution.interrupts import ended_at_once, signal_free_loop
from sparseoco.execution.kubernetes import kubernetes_cluster
from sparseoco.execution.options import ClusterOptions as ClusterOptions
from sparseoco.execution.queues import job_cluster
from sparseoco.execution.settings import ACROSS_HOSTS, ONE_THREAD, SHARED

CONNECT_SECONDS = 15
OWN_TRIES = 4  # workers of our own are waited for so many times as long: they are being started
NEVER = "1000 days"
PATIENCE = "sparseoco.patience"  # in Dask's configuration: seconds for which there may be no worker at all
LOOPBACK = "127.0.0.1:0"  # any free port, reached from this machine only
LOOK_SECONDS = 0.2  # between two looks at whether workers have begun
OTHERS_SECONDS = 60  # where one worker came, the others are waited for so long before work is cut up for them

_held: dict[str, Client] = {}  # clients of jobs or pods that several connect to, by their options


@contextmanager
def connect(options: ClusterOptions, scratch: Path) -> Iterator[Client]:
    """A Dask client, and a cluster behind it that is closed with it unless it is somebody else's.

    Workers of our own work in `scratch`, which one process at a time may use.

    Raises `InputError` for an address where no scheduler answers and for what is not installed, `SparseocoError` if
    workers cannot be started.
    """
    held = _held.get(options.model_dump_json())
    if held is not None and held.status == "running":
        yield held
        return
    asked: Any = getattr(options, options.where, None)
    shape: Any = options.workers, options.threads or 1, options.memory
    match options.where:
        case "local":
            cluster = _own_cluster(options, scratch)
        case "address":
            cluster = _cluster_at(str(options.scheduler))
        case "slurm" | "pbs":
            cluster = _once_begun(job_cluster(asked, scratch, *shape), options)
        case "kubernetes":
            cluster = _once_begun(kubernetes_cluster(asked, options.wait, *shape), options)
    with cluster as client:
        yield client


@contextmanager
def shared_cluster(options: ClusterOptions, scratch: Path) -> Iterator[None]:
    """All that connects in here has the same jobs or pods, and stands in their queue once; of others, each its own.

    Raises what `connect` does.
    """
    if options.where not in ("slurm", "pbs", "kubernetes"):
        yield
        return
    with connect(options, scratch) as client:
        key = options.model_dump_json()
        _held[key] = client
        try:
            yield
        finally:
            del _held[key]


@contextmanager
def _once_begun(cluster: AbstractContextManager[Client], options: ClusterOptions) -> Iterator[Client]:
    """A client of workers that are jobs or pods, once the first of them has begun and the others have had a while.

    Raises `SparseocoError` if none begins within the time that the options give.
    """
    with cluster as client, dask.config.set({PATIENCE: options.wait}):
        if not _wait_for(client, 1, options.wait):
            raise SparseocoError(
                f"No worker has begun within {options.wait:g} s: the queue is long, or what is asked for is not there."
            )
        _wait_for(client, options.workers or 1, OTHERS_SECONDS)
        yield client


def _wait_for(client: Client, count: int, seconds: float) -> bool:
    """Whether there are so many workers within a time."""
    end = time.monotonic() + seconds
    while len(workers_of(client)) < count:
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


@contextmanager
def _own_cluster(options: ClusterOptions, scratch: Path) -> Iterator[Client]:
    """A cluster on this machine, in this process or in processes of its own."""
    if options.workers is None:
        shape: dict[str, Any] = {
            "processes": False,
            "n_workers": 1,
            "threads_per_worker": options.threads or len(os.sched_getaffinity(0)),
            # Blocks of columns are sized by it beforehand; the process itself is never paused.
            "memory_limit": options.memory or 0,
        }
    else:
        shape = {
            "processes": True,
            "n_workers": options.workers,
            "threads_per_worker": options.threads or 1,
            "memory_limit": options.memory or "auto",
            "host": "127.0.0.1",
        }
    # The comings and goings of our own workers are no news, nor is what they leave unread when they are closed.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    workspaces = scratch / "dask-scratch-space"  # the name is Dask's; what a killed run left there is of no use
    settings = {
        "distributed.worker.use-file-locking": False,
        "distributed.scheduler.work-stealing": True,
        "distributed.nanny.pre-spawn-environ": ONE_THREAD,
        "distributed.nanny.environ": {SHARED: str(workspaces.absolute())},
        "distributed.comm.retry.count": 3,
        # By default keepers whose worker is away 15 s after one died are ended, just when they start another; that one
        # gets a task and is killed, and the task is blamed for it. `start_again` sees to keepers that gave up.
        "distributed.deploy.lost-worker-timeout": NEVER,
        "distributed.worker.memory.target": False,  # nothing is kept in a worker that could be spilled
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False if options.workers is None else 0.95,
    }
    shutil.rmtree(workspaces, ignore_errors=True)
    try:
        with (
            dask.config.set(settings),
            signal_free_loop() as loop,
            _start(loop=loop, local_directory=str(scratch), **shape) as cluster,
            Client(cluster, set_as_default=False) as client,
            ended_at_once(cluster),
        ):
            yield client
    finally:  # after an interrupt, too
        shutil.rmtree(workspaces, ignore_errors=True)
        with suppress(OSError):
            scratch.rmdir()


def _start(**shape: Any) -> LocalCluster:
    try:
        return LocalCluster(
            dashboard_address=LOOPBACK, worker_dashboard_address=LOOPBACK, silence_logs=logging.CRITICAL, **shape
        )
    except RuntimeError as error:  # one that is killed before it has begun is not started again by Dask
        raise SparseocoError(f"The worker processes could not be started: {error}") from error


@contextmanager
def _cluster_at(address: str) -> Iterator[Client]:
    with dask.config.set(ACROSS_HOSTS), _client_at(address) as client:
        yield client


def _client_at(address: str) -> Client:
    try:
        asyncio.run(_knock(address))  # a client that fails to connect takes 30 s more to let go
        return Client(address, set_as_default=False)  # what it asks later may wait as long as a link may be cut
    except TypeError as error:
        raise InputError(
            f"{address} wants certificates: name them in Dask's configuration (distributed.comm.tls.ca-file, "
            "distributed.comm.tls.client.cert and .key)."
        ) from error
    except (OSError, TimeoutError) as error:
        if _about_certificates(error):
            raise InputError(
                f"The scheduler at {address} and this client do not accept each other's certificates; both must be "
                "signed by the authority in distributed.comm.tls.ca-file."
            ) from error
        raise InputError(f"No Dask scheduler answers at {address} within {CONNECT_SECONDS} s.") from error
    except ValueError as error:
        raise InputError(
            f"{address} is not a Dask scheduler's address (tcp://HOST:PORT or tls://HOST:PORT)."
        ) from error


def _about_certificates(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error is not None


async def _knock(address: str) -> None:
    secrets = Security().get_connection_args("client") if address.startswith("tls") else {}
    comm = await knock(address, timeout=CONNECT_SECONDS, **secrets)
    await comm.close()


def workers_of(client: Client) -> dict[str, Any]:
    """What the scheduler says of each of its workers, by address.

    Asked for anew: what a client keeps (`Client.scheduler_info`) is written over every other second, by a summary
    without workers that may come between the question and the reading of its answer. Raises `SparseocoError` if the
    scheduler does not answer.
    """
    try:
        found: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    except OSError as error:
        raise SparseocoError("The Dask scheduler does not answer any more: run again to go on.") from error
    return found


def start_again(client: Client) -> int:
    """Start workers of our own again whose keepers gave up; gives how many workers there were, none of which is known
    while the link to the scheduler is cut."""
    try:
        there, cluster = len(workers_of(client)), client.cluster
    except SparseocoError:
        return 0
    if isinstance(cluster, LocalCluster) and there < len(cluster.worker_spec):
        client.sync(_replace_keepers, cluster)
    return there


async def _replace_keepers(cluster: LocalCluster) -> None:
    for name, keeper in list(cluster.workers.items()):
        if keeper.status in (Status.closed, Status.failed):
            del cluster.workers[name]
    cluster.scale(len(cluster.worker_spec))


def worker_shape(client: Client) -> tuple[int, int]:
    """(tasks that run at once on the whole cluster, bytes of memory for each of them).

    A worker without a limit has its share of the machine's memory. Raises `SparseocoError` if the cluster has no worker
    within `CONNECT_SECONDS`, workers of our own being started again meanwhile.
    """
    workers: dict[str, Any] = {}
    tries = OWN_TRIES if isinstance(client.cluster, LocalCluster) else 1
    while not workers:
        start_again(client)
        try:
            client.wait_for_workers(1, timeout=CONNECT_SECONDS)
        except TimeoutError as error:
            tries -= 1
            if tries:
                continue
            raise SparseocoError(
                f"The Dask cluster has no worker after {CONNECT_SECONDS} s: start some and run again."
            ) from error
        workers = workers_of(client)  # none, where the last one died a moment ago
    limits = [(worker["memory_limit"] or MEMORY_LIMIT) // worker["nthreads"] for worker in workers.values()]
    return sum(worker["nthreads"] for worker in workers.values()), min(limits)


def spread_over(client: Client, count: int) -> list[dict[str, Any]]:
    """For each of `count` tasks, what tells `submit` its host: runs of them to a thread, the same from call to call.

    Another host that has nothing to do may take it. So one reads, pass after pass, the same part of the data. (Not the
    worker is named: when all are dead for a moment, Dask leaves tasks that named one waiting for that very address.)
    """
    workers = workers_of(client)
    slots = [workers[address]["host"] for address in sorted(workers) for _ in range(workers[address]["nthreads"])]
    if not slots:  # all died a moment ago: whoever comes next
        return [{}] * count
    return [{"workers": [slots[i * len(slots) // count]], "allow_other_workers": True} for i in range(count)]
