"""Checks of doctor: machine, paths, cluster."""

import os
import platform
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import Client
from distributed.system import MEMORY_LIMIT
from numba.core.caching import CompileResultCacheImpl
from packaging.requirements import Requirement

from sparseoco import __version__
from sparseoco.core.errors import SparseocoError
from sparseoco.core.formatting import plural
from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect, scheduler_workers, worker_shape
from sparseoco.ops.status import folder_lock
from sparseoco.pipeline.nightly.records import read_history
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location, free_bytes, location, redact_password
from sparseoco.store.shards import Store
from sparseoco.text.formats import FOLDERS, TABLES
from sparseoco.text.increments import find_new
from sparseoco.text.options import TextOptions
from sparseoco.text.sources import find_sources
from sparseoco.text.streams import first_bytes
from sparseoco.text.tables import open_table
from sparseoco.training.columns import padded

# ----------------------------------------------------------------------------------------------------------------------
# The result of a check: a message, and how serious it is.


State = Literal["error", "warning", "ok"]


class Finding(NamedTuple):
    """A subject's state (error: a run will fail; warning: it may; or ok), a message, and the code of an error."""

    state: State
    subject: str
    message: str
    code: str = ""


def ok(subject: str, message: str) -> Finding:
    """Nothing is wrong."""
    return Finding("ok", subject, message)


def warning(subject: str, message: str, code: str = "") -> Finding:
    """A run may fail."""
    return Finding("warning", subject, message, code)


def error(subject: str, message: str, code: str = "") -> Finding:
    """A run will fail."""
    return Finding("error", subject, message, code)


def run_check(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; an exception becomes an error finding."""
    try:
        yield from check()
    except SparseocoError as raised:
        yield error(subject, str(raised), raised.code)
    except Exception as raised:  # a check that fails must not hide the findings of the others
        yield error(subject, f"The check itself failed: {type(raised).__name__}.")


# ----------------------------------------------------------------------------------------------------------------------
# This machine: installed packages, the compile cache, memory, the Prefect server.


MIN_MEMORY = 2 << 30
TIMEOUT_SECONDS = 5.0
CONSEQUENCES = {  # of versions that pip accepts and that fail late, or silently
    "fastapi": "every flow run would fail",
    "sqlalchemy": "scheduled flow runs would silently never be created",
}


def check_machine() -> Iterator[Finding]:
    """All checks of the machine."""
    yield from installed()
    yield from compile_cache()
    yield from memory()


def installed() -> Iterator[Finding]:
    """Whether the installed packages meet the requirements; of those of extras the ones that fail late."""
    found, every = 0, [Requirement(line) for line in requires("sparseoco") or ()]
    for wanted in {
        (each.name, str(each.specifier)): each for each in reversed(every)
    }.values():  # several extras name it
        here, consequence = _version(wanted.name), CONSEQUENCES.get(wanted.name.lower())
        if (
            wanted.marker is not None
            and not wanted.marker.evaluate({"extra": ""})
            and (here is None or not consequence)
        ):
            continue
        if here is None:
            yield error("packages", f"{wanted.name} is not installed: install {wanted.name}{wanted.specifier}.")
            continue
        found += 1
        if not wanted.specifier.contains(here, prereleases=True):
            message = f"{wanted.name} {here} is installed, {wanted.name}{wanted.specifier} is required"
            yield error("packages", f"{message}{f': {consequence}' if consequence else ''}.")
    python = platform.python_version()
    yield ok("packages", f"sparseoco {__version__} on Python {python}, {plural(found, 'package')} checked.")
    if sys.version_info < (3, 11, 4):
        yield warning("packages", f"Python {python} cannot unpack archives safely: 3.11.4 or later can.")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def compile_cache() -> Iterator[Finding]:
    """Whether compiled code can be cached: if not, every process compiles for a minute."""
    try:
        folder = CompileResultCacheImpl(padded).locator.get_cache_path()
    except RuntimeError:
        yield error(
            "compile cache",
            "There is no folder for the compile cache, so every process compiles for minutes: set NUMBA_CACHE_DIR "
            "to a writable folder.",
        )
        return
    free = free_bytes(Path(folder))
    state = ok if free > 256 << 20 else warning
    yield state("compile cache", f"{folder} is writable ({format_bytes(free)} free).")


def memory() -> Iterator[Finding]:
    """Processors and memory that this process may use."""
    virtual = psutil.virtual_memory()
    processors = plural(len(os.sched_getaffinity(0)), "processor")
    message = f"{processors}, {format_bytes(virtual.available)} of {format_bytes(virtual.total)} of memory are free."
    yield (ok if virtual.available >= MIN_MEMORY else warning)("memory", message)


def prefect() -> Iterator[Finding]:
    """Whether the server of the flows responds."""
    address = os.environ.get("PREFECT_API_URL")
    if not address:
        yield ok("Prefect", "PREFECT_API_URL is not set: unless a Prefect profile names a server, a flow starts "
                 "a temporary one.")  # fmt: skip
        return
    plain, problem = redact_password(address), ""
    try:
        request = Request(f"{plain.rstrip('/')}/health")
        if account := urlsplit(address).netloc.rpartition("@")[0]:
            request.add_unredirected_header("Authorization", f"Basic {b64encode(unquote(account).encode()).decode()}")
        with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            problem = "it redirects" if answer.url != request.full_url else ""
    except HTTPError as raised:
        raised.close()  # it is the open response of the server
        problem = f"status {raised.code}"
    except (HTTPException, OSError, ValueError) as raised:
        problem = str(getattr(raised, "reason", raised))
    if problem:
        yield error("Prefect", f"No healthy server at {plain} ({problem}): start one, or set PREFECT_API_URL to a URL "
                    "such as http://127.0.0.1:4200/api, with the password if there is one.")  # fmt: skip
    else:
        yield ok("Prefect", f"The server at {plain} is healthy.")


# ----------------------------------------------------------------------------------------------------------------------
# The files of a run: its inputs, and the folders it writes to.


LARGE_BYTES = 1 << 30  # of a compressed file, which is not cut before it is read


def check_inputs(run: RunFile) -> Iterator[Finding]:
    """Whether the raw text of a run can be read, and how many of its files are new if some are already ingested."""
    options, store = text_options(run), Store.find(run.store)
    sources = find_sources(list(run.ingest.inputs), options, may_be_empty=is_nightly(run))
    new, _ = find_new(list(run.ingest.inputs), run.store, options, store)
    for source in sources:
        if source.format in TABLES:
            open_table(source.absolute, source.format, source.key, source.pin)
        elif source.format not in FOLDERS:
            first_bytes(source.path, source.compression, 1, options.encoding)
    more = "" if store is None else f", {len(new):,} of them new"
    size = f"{plural(len(sources), 'source')}, {format_bytes(sum(source.bytes for source in sources))}{more}"
    yield ok("inputs", f"{size}, all can be opened." if sources else "There are no new files.")
    for source in sources:
        if source.compression is not None and source.bytes > LARGE_BYTES:
            yield warning(
                "inputs",
                f"{source.path} is one compressed file of {format_bytes(source.bytes)}, which only one worker "
                "reads from beginning to end: use several files, or leave it uncompressed.",
            )


def text_options(run: RunFile) -> TextOptions:
    """The options that the text of a run, or of nightly increments, is ingested with."""
    return run.ingest.text if is_nightly(run) else run.text


def is_nightly(run: RunFile) -> bool:
    """Whether the folder has nightly increments: then files may be deleted once they are ingested."""
    return bool(read_history(run.out, "history"))


def check_folder(subject: str, folder: Location) -> Iterator[Finding]:
    """Whether a folder is writable, locked, and how much space is free."""
    existing = nearest_existing(folder)
    probe = existing / f".doctor-{os.getpid()}"
    commit_bytes(probe, b"doctor")
    if probe.read_bytes() != b"doctor":
        yield error(subject, f"{folder} does not return what was written to it.")
    remove_file(probe)
    space = f" ({format_bytes(free_bytes(existing))} free)" if isinstance(existing, Path) else ""
    yield ok(subject, f"{folder} is writable{space}.")
    lock = folder_lock(folder)
    if lock is not None and lock.held:
        yield error(subject, f"{lock.message}: only one process can write to a folder.")
    elif lock is not None:
        yield (ok if lock.expired else warning)(subject, f"{lock.message}.")


def nearest_existing(folder: Location) -> Location:
    """The folder, or its nearest existing parent; a remote URI itself, since it has no folders."""
    if not isinstance(folder, Path) or folder.exists() or folder == folder.parent:
        return folder
    return nearest_existing(folder.parent)


# ----------------------------------------------------------------------------------------------------------------------
# The Dask cluster: whether it responds, runs the same versions, and sees the same files.


PACKAGES = ("sparseoco", "dask", "distributed", "numba", "numpy", "pyarrow")


def cluster_shape(options: ClusterOptions) -> WorkerShape:
    """The shape of a running cluster, or of the one that is started here. Raises what `connect` does."""
    if options.scheduler is None:
        return _local_shape(options)
    with connect(options, Path()) as client:
        return worker_shape(client)


def _local_shape(options: ClusterOptions) -> WorkerShape:
    processors = len(os.sched_getaffinity(0))
    threads = options.threads or (processors if options.workers is None else 1)
    share = 1.0 if options.workers is None else min(1.0, threads / processors)
    memory = parse_bytes(options.memory or int(MEMORY_LIMIT * share))
    return WorkerShape((options.workers or 1) * threads, memory // threads, threads)


def check_cluster(options: ClusterOptions, shared: Location | None) -> Iterator[Finding]:
    """Check the cluster; `shared` is a folder that the workers of a running one are tested to see."""
    if options.scheduler is None:
        shape = _local_shape(options)
        where = "this process" if options.workers is None else plural(options.workers, "worker process", "processes")
        yield ok("Dask", f"{plural(shape.tasks, 'concurrent task')} in {where}, {format_bytes(shape.memory)} each.")
        return
    with connect(options, Path()) as client:
        shape, workers = worker_shape(client), scheduler_workers(client)
        hosts = {worker["host"] for worker in workers.values()}
        size = f"{plural(len(workers), 'worker')} on {plural(len(hosts), 'host')}"
        tasks = f"{plural(shape.tasks, 'concurrent task')}, {format_bytes(shape.memory)} each"
        yield ok("Dask", f"The scheduler at {options.scheduler} responds: {size}, {tasks}.")
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
