"""The Dask cluster: whether it responds, runs the same versions, and sees the same files."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dask.utils import format_bytes, parse_bytes
from distributed import Client
from distributed.system import MEMORY_LIMIT

from sparseoco.core.formatting import plural
from sparseoco.execution.clusters import ClusterOptions, connect, scheduler_workers, worker_shape
from sparseoco.execution.options import JobOptions
from sparseoco.execution.queues import check_commands
from sparseoco.ops.doctor.findings import Finding, error, ok, warning
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location, location

PACKAGES = ("sparseoco", "dask", "distributed", "numba", "numpy", "pyarrow")
EXTRAS = {"slurm": "dask_jobqueue", "pbs": "dask_jobqueue", "kubernetes": "dask_kubernetes"}


class Shape(NamedTuple):
    """Concurrent tasks in the whole cluster, bytes for each of them, tasks per process."""

    tasks: int
    memory: int
    threads: int


def cluster_shape(options: ClusterOptions) -> Shape:
    """The shape of a running cluster, or the one requested. Raises what `connect` does."""
    if options.where != "address":
        return _requested_shape(options)
    with connect(options, Path()) as client:
        tasks, memory = worker_shape(client)
        return Shape(tasks, memory, max(worker["nthreads"] for worker in scheduler_workers(client).values()))


def _requested_shape(options: ClusterOptions) -> Shape:
    processors = len(os.sched_getaffinity(0))
    if options.workers is None:
        threads = options.threads or processors
        return Shape(threads, (parse_bytes(options.memory) if options.memory else MEMORY_LIMIT) // threads, threads)
    threads = options.threads or 1
    share = min(1.0, threads / processors) if options.where == "local" else 1.0
    memory = parse_bytes(options.memory) if options.memory else int(MEMORY_LIMIT * share)
    return Shape(options.workers * threads, memory // threads, threads)


def check_cluster(options: ClusterOptions, shared: Location | None) -> Iterator[Finding]:
    """Check the cluster without requesting workers from a queue.

    `shared` is a folder that the workers of a running cluster are tested to see.
    """
    extra = EXTRAS.get(options.where)
    if extra is not None:
        shape = _requested_shape(options)
        queue = getattr(options, options.where)
        if isinstance(queue, JobOptions):
            check_commands(queue)
        if find_spec(extra) is None:
            yield error("Dask", f"{options.where} requires another package: pip install 'sparseoco[{options.where}]'.")
        else:
            request = f"{plural(options.workers or 1, 'worker')} of {format_bytes(shape.memory * shape.threads)} each"
            yield ok("Dask", f"{options.where} will be asked for {request}; whether it has them is not tested.")
        return
    if options.where == "local":
        shape = _requested_shape(options)
        where = "this process" if options.workers is None else plural(options.workers, "worker process", "processes")
        yield ok("Dask", f"{plural(shape.tasks, 'concurrent task')} in {where}, {format_bytes(shape.memory)} each.")
        return
    with connect(options, Path()) as client:
        tasks, memory = worker_shape(client)
        workers = scheduler_workers(client)
        hosts = {worker["host"] for worker in workers.values()}
        size = f"{plural(len(workers), 'worker')} on {plural(len(hosts), 'host')}, {plural(tasks, 'concurrent task')}"
        yield ok("Dask", f"The scheduler at {options.scheduler} responds: {size}, {format_bytes(memory)} each.")
        yield from _versions(client)
        if shared is not None:
            yield from _same_files(client, shared)


def _versions(client: Client) -> Iterator[Finding]:
    versions = client.get_versions(check=False, packages=list(PACKAGES))
    own = _relevant(versions["client"])
    others = {"The scheduler": versions["scheduler"]}
    others |= {f"The worker {address}": packages for address, packages in versions["workers"].items()}
    same = True
    for who, packages in others.items():
        theirs = {} if packages is None else _relevant(packages)
        differ = [f"{name} {theirs.get(name)}, not {own[name]}" for name in own if theirs.get(name) != own[name]]
        if differ:
            same = False
            # The scheduler runs nothing of this package and need not have it.
            fatal = who != "The scheduler" and theirs.get("sparseoco") != own["sparseoco"]
            yield (error if fatal else warning)("Dask", f"{who} has {'; '.join(differ)}: install the same everywhere.")
    if same:
        yield ok("Dask", "The scheduler and all workers have the versions installed here.")


def _relevant(versions: dict[str, Any]) -> dict[str, str | None]:
    packages: dict[str, str | None] = versions["packages"]
    return {name: packages.get(name) for name in ("python", *PACKAGES)}


def _same_files(client: Client, folder: Location) -> Iterator[Finding]:
    probe = folder / f".doctor-{os.getpid()}"
    commit_bytes(probe, b"")
    try:
        seen: dict[str, bool] = client.run(_sees, str(probe.resolve()))
    finally:
        remove_file(probe)
    blind = sorted(address for address, sees in seen.items() if not sees)
    for address in blind:
        yield error("Dask", f"The worker {address} does not see files written to {folder}: mount it there under the "
                    "same path, or use a bucket.")  # fmt: skip
    if not blind:
        yield ok("Dask", f"All workers see files written to {folder}.")


def _sees(uri: str) -> bool:
    try:
        return location(uri).exists()
    except Exception:  # no credentials there, or no package for such URIs
        return False
