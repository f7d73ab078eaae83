"""Where Dask is: whether it answers, runs the same versions, and sees the same files."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from dask.utils import format_bytes, parse_bytes
from distributed import Client
from distributed.system import MEMORY_LIMIT

from sparseoco.execution.clusters import ClusterOptions, connect, scheduler_workers, worker_shape
from sparseoco.execution.queues import JobOptions, check_commands
from sparseoco.ops.doctor.findings import Finding, doubtful, fine, wrong
from sparseoco.report.wording import plural
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location, location

ALIKE = ("sparseoco", "dask", "distributed", "numba", "numpy", "pyarrow")
EXTRAS = {"slurm": "dask_jobqueue", "pbs": "dask_jobqueue", "kubernetes": "dask_kubernetes"}


class Shape(NamedTuple):
    """Tasks at once in the whole cluster, bytes for each of them, tasks a process."""

    tasks: int
    memory: int
    threads: int


def shape_of(options: ClusterOptions) -> Shape:
    """What a cluster has, or, where it is not there yet, what it is to have. Raises what `connect` does."""
    if options.where != "address":
        return _asked_for(options)
    with connect(options, Path()) as client:
        tasks, memory = worker_shape(client)
        return Shape(tasks, memory, max(worker["nthreads"] for worker in scheduler_workers(client).values()))


def _asked_for(options: ClusterOptions) -> Shape:
    processors = len(os.sched_getaffinity(0))
    if options.workers is None:
        threads = options.threads or processors
        return Shape(threads, (parse_bytes(options.memory) if options.memory else MEMORY_LIMIT) // threads, threads)
    threads = options.threads or 1
    share = min(1.0, threads / processors) if options.where == "local" else 1.0
    memory = parse_bytes(options.memory) if options.memory else int(MEMORY_LIMIT * share)
    return Shape(options.workers * threads, memory // threads, threads)


def look_at_cluster(options: ClusterOptions, shared: Location | None) -> Iterator[Finding]:
    """What can be said of the cluster without asking a queue for workers.

    `shared` is a folder that the workers of a running one are asked to see into.
    """
    extra = EXTRAS.get(options.where)
    if extra is not None:
        shape = _asked_for(options)
        queue = getattr(options, options.where)
        if isinstance(queue, JobOptions):
            check_commands(queue)
        if find_spec(extra) is None:
            yield wrong("Dask", f"{options.where} needs another package: pip install 'sparseoco[{options.where}]'.")
        else:
            asked = f"{plural(options.workers or 1, 'worker')} of {format_bytes(shape.memory * shape.threads)} each"
            yield fine("Dask", f"{options.where} will be asked for {asked}; whether it has them is not tried.")
        return
    if options.where == "local":
        shape = _asked_for(options)
        where = "this process" if options.workers is None else plural(options.workers, "worker process", "processes")
        yield fine("Dask", f"{plural(shape.tasks, 'task')} at once in {where}, {format_bytes(shape.memory)} each.")
        return
    with connect(options, Path()) as client:
        tasks, memory = worker_shape(client)
        workers = scheduler_workers(client)
        hosts = {worker["host"] for worker in workers.values()}
        there = f"{plural(len(workers), 'worker')} on {plural(len(hosts), 'host')}, {plural(tasks, 'task')} at once"
        yield fine("Dask", f"The scheduler at {options.scheduler} answers: {there}, {format_bytes(memory)} each.")
        yield from _versions(client)
        if shared is not None:
            yield from _same_files(client, shared)


def _versions(client: Client) -> Iterator[Finding]:
    told = client.get_versions(check=False, packages=list(ALIKE))
    own = _alike(told["client"])
    others = {"The scheduler": told["scheduler"], **{f"The worker {a}": v for a, v in told["workers"].items()}}
    alike = True
    for who, versions in others.items():
        theirs = {} if versions is None else _alike(versions)
        differ = [f"{name} {theirs.get(name)}, not {own[name]}" for name in own if theirs.get(name) != own[name]]
        if differ:
            alike = False
            # Who runs nothing of this package need not have it.
            grave = who != "The scheduler" and theirs.get("sparseoco") != own["sparseoco"]
            yield (wrong if grave else doubtful)("Dask", f"{who} has {'; '.join(differ)}: install the same everywhere.")
    if alike:
        yield fine("Dask", "The scheduler and all workers have the versions that are installed here.")


def _alike(versions: dict[str, Any]) -> dict[str, str | None]:
    packages: dict[str, str | None] = versions["packages"]
    return {name: packages.get(name) for name in ("python", *ALIKE)}


def _same_files(client: Client, folder: Location) -> Iterator[Finding]:
    probe = folder / f".doctor-{os.getpid()}"
    commit_bytes(probe, b"")
    try:
        seen: dict[str, bool] = client.run(_sees, str(probe.resolve()))
    finally:
        remove_file(probe)
    blind = sorted(address for address, sees in seen.items() if not sees)
    for address in blind:
        yield wrong("Dask", f"The worker {address} does not see what is written to {folder}: mount it there under the "
                    "same path, or use a bucket.")  # fmt: skip
    if not blind:
        yield fine("Dask", f"All workers see what is written to {folder}.")


def _sees(place: str) -> bool:
    try:
        return location(place).exists()
    except Exception:  # no credentials there, or not the package that reads such addresses
        return False
