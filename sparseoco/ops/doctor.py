"""sparseoco doctor: all checks of a machine, its cluster, and a run."""

import os
import platform
import sys
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
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
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.formatting import integer, percent, plural
from sparseoco.execution.clusters import ClusterOptions, WorkerShape, connect, scheduler_workers, worker_shape
from sparseoco.ops.status import folder_lock
from sparseoco.pipeline.evaluation import NO_TEST_DOCUMENTS, NO_TEST_LABELS
from sparseoco.pipeline.nightly.records import held, held_line, read_history
from sparseoco.pipeline.run_file import RunFile, load_run_file, name_keys
from sparseoco.search import packing
from sparseoco.search.run import options_for_search, with_models
from sparseoco.storage.commit import commit_bytes, remove_file
from sparseoco.storage.locations import Location, free_bytes, is_local, location, redact_password
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.shards import Store
from sparseoco.text.counting import count_documents
from sparseoco.text.formats import FOLDERS, TABLES, first_bytes
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.passes import find_new, new_sources
from sparseoco.text.readers import Sample
from sparseoco.text.sources import find_sources
from sparseoco.text.tables import open_table
from sparseoco.training.block import search_settings
from sparseoco.training.learner import padded
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import StreamPosition

# ----------------------------------------------------------------------------------------------------------------------
# The result of a check: a message, and how serious it is.


State = Literal["error", "warning", "ok"]


class Finding(NamedTuple):
    """A subject's state (error: a run will fail; warning: it may; or ok), a message, and the code of an error."""

    state: State
    subject: str
    message: str
    code: str = ""


ok, warning, error = partial(Finding, "ok"), partial(Finding, "warning"), partial(Finding, "error")


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
    virtual = psutil.virtual_memory()
    processors = plural(len(os.sched_getaffinity(0)), "processor")
    message = f"{processors}, {format_bytes(virtual.available)} of {format_bytes(virtual.total)} of memory are free."
    yield (ok if virtual.available >= MIN_MEMORY else warning)("memory", message)


def installed() -> Iterator[Finding]:
    """Whether the installed packages meet the requirements; of those of extras the ones that fail late."""
    found, every = 0, [Requirement(line) for line in requires("sparseoco") or ()]
    for wanted in {
        (each.name, str(each.specifier)): each for each in reversed(every)
    }.values():  # several extras name it
        here, consequence = None, CONSEQUENCES.get(wanted.name.lower())
        with suppress(PackageNotFoundError):
            here = version(wanted.name)
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
    if (row := held(run.out)) is not None:
        yield error("nightly", f"{held_line(row)}: accept or discard it.", "held")
    options, store = run.ingest.text if is_nightly(run) else run.text, Store.find(run.store)
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


def is_nightly(run: RunFile) -> bool:
    """Whether the folder has nightly increments: then files may be deleted once they are ingested."""
    return bool(read_history(run.out, "history"))


def check_folder(subject: str, folder: Location) -> Iterator[Finding]:
    """Whether a folder is writable, locked, and how much space is free."""
    existing = folder  # or its nearest parent that exists; a remote URI itself, since it has no folders
    while isinstance(existing, Path) and not existing.exists() and existing != existing.parent:
        existing = existing.parent
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


# ----------------------------------------------------------------------------------------------------------------------
# The Dask cluster: whether it responds, runs the same versions, and sees the same files.


PACKAGES = ("sparseoco", "dask", "distributed", "numba", "numpy", "pyarrow")


def _local_shape(options: ClusterOptions) -> WorkerShape:
    """The shape of the cluster that is started here."""
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


# ----------------------------------------------------------------------------------------------------------------------
# sparseoco doctor: all checks of a machine and of a run.


ORDER = {"error": 0, "warning": 1, "ok": 2}


def examine(run_file: Location | None, cluster_file: Location | None = None) -> list[Finding]:
    """Check this machine and, if given, a run file, with the cluster of a file of its own if there is one.

    Returns
    -------
    list of Finding
        Errors first.
    """
    once: dict[tuple[str, str], Finding] = {}
    for finding in _all(run_file, cluster_file):
        if run_file is not None:
            finding = finding._replace(message=name_keys(finding.message))
        # Several checks may find the same missing file.
        once.setdefault((finding.state, finding.message), finding)
    return sorted(once.values(), key=lambda finding: ORDER[finding.state])


def _all(run_file: Location | None, cluster_file: Location | None) -> Iterator[Finding]:
    """All checks of this machine and of a run, the fastest first."""
    yield from run_check("this machine", check_machine)
    yield from run_check("Prefect", prefect)
    if run_file is None:
        return
    try:
        run = load_run_file(run_file, cluster_file)
    except SparseocoError as raised:
        yield error("run file", str(raised), raised.code)
        return
    yield from run_check("inputs", lambda: check_inputs(run))
    yield from run_check("out", lambda: check_folder("out", run.out))
    if run.ingest.store is not None:
        yield from run_check("store", lambda: check_folder("store", run.store))
    shared = run.out if run.out.exists() or not is_local(run.out) else None
    dask = list(run_check("Dask", lambda: check_cluster(run.cluster, shared)))
    yield from dask
    dask_failed = run.cluster.scheduler is not None and _has_error(dask)
    with temporary_folder() as folder:
        found: list[Store] = []
        text = list(run_check("inputs", lambda: _check_text(run, folder, found)))
        if found:
            text += run_check("search", lambda: _check_search(run, found[0], with_memory=not dask_failed))
        yield from text
        if run.evaluate.inputs is not None or not _has_error(text):
            yield from run_check("evaluate", lambda: _check_test_set(run, found))


def _has_error(findings: list[Finding]) -> bool:
    return any(finding.state == "error" for finding in findings)


# ----------------------------------------------------------------------------------------------------------------------
# The text is read as an ingest reads it: small inputs as a whole, into a temporary store, large ones in part.


SLICE = 1 << 18  # bytes of the parts of a sample


def _check_text(run: RunFile, folder: Path, found: list[Store]) -> Iterator[Finding]:
    """Read new text; `found` gets the store of the run or, of small inputs, one in the folder."""
    options, store = run.ingest.text if is_nightly(run) else run.text, Store.find(run.store)
    sources = find_sources(list(run.ingest.inputs), options, may_be_empty=store is not None)
    if store is not None:
        found.append(store)
        options = options.with_classes(store.classes) if store.classes else options
        sources = new_sources(sources, options, store)
    sample = Sample(sources, options, SLICE)
    if store is None and sample.is_whole:
        manifest = ingest(list(run.ingest.inputs), folder, options, shard_bytes=run.ingest.shard_bytes)
        found.append(Store(folder, manifest))
        yield from _bad_rows(manifest.quarantined_rows, 1.0, options)
        return
    try:
        for _, documents in sample:
            count_documents(documents, options)  # raises as the ingest would
    except InputError as raised:
        if not is_nightly(run):
            raise
        left_out = "A nightly run leaves such a file out, and fails if no other is new."
        yield warning("inputs", f"{raised} {left_out}", raised.code)
    yield from _bad_rows(sample.bad, sample.share, options)
    if store is None:
        if not sample.rows:
            where = ": check the option where" if options.where else ""
            raise InputError(f"No document was read in {_sampled(sample.share)}{where}.", code="no-documents")
        read = f"{plural(sample.rows, 'document')} in {_sampled(sample.share)} can be read"
        yield ok(
            "inputs", f"{read}. [search] and its memory are checked once there are shards: sparseoco doctor again."
        )


def _sampled(share: float) -> str:
    return "all of the text" if share == 1.0 else f"a sample of {percent(share)} of the text"


def _bad_rows(bad: int, share: float, options: TextOptions) -> Iterator[Finding]:
    """How many rows cannot be read, if no more than are allowed were found."""
    if not bad:
        return
    message = f"{plural(bad, 'row')} of {_sampled(share)} cannot be read, and max_bad_rows is {options.max_bad_rows:,}"
    if bad / share > options.max_bad_rows:
        yield warning("inputs", f"{message}: the ingest will probably find more.")
    else:
        yield ok("inputs", f"{message}.")


def _check_test_set(run: RunFile, found: list[Store]) -> Iterator[Finding]:
    """Read the test set, or a sample of it."""
    if is_nightly(run) or not (run.evaluate.names_test_set or run.text.holdout):
        return
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    options = run.text.without_columns()
    if run.evaluate.names_test_set:
        options = options.model_copy(update={"where": run.evaluate.where})
    if found and found[0].classes:
        options = options.with_classes(found[0].classes)
    sample = Sample(find_sources(list(inputs), options), options, SLICE, withheld=options.holdout > 0)
    for _, documents in sample:
        if documents.labels is None:
            raise InputError(NO_TEST_LABELS, code="no-labels")
        count_documents(documents, options)
    if sample.is_whole and not sample.rows and run.evaluate.names_test_set:
        raise InputError(NO_TEST_DOCUMENTS, code="no-documents")
    yield ok("evaluate", f"{plural(sample.rows, 'test document')} in {_sampled(sample.share)} can be read.")


# ----------------------------------------------------------------------------------------------------------------------
# The search against a store: whether its options fit, and the memory that packing computes.
#
#   memory of a process = 400 MB + the corpus, if it is small enough to be memory-mapped
#                         + tasks × (the largest block + 64 MB + 48 bytes per feature)


def _check_search(run: RunFile, store: Store, *, with_memory: bool) -> Iterator[Finding]:
    """Raises `InputError` if not even one configuration fits in memory."""
    try:
        options = with_models(options_for_search(store, run.search), store, run.out / "model")
    except SparseocoError as raised:
        yield error("search", str(raised).replace(str(store.folder), str(run.store)), raised.code)
        return
    documents, features = plural(store.n_rows, "document"), plural(store.n_features, "feature")
    yield ok("search", f"It fits {documents}, {features}, {integer(store.manifest.nonzeros)} nonzeros.")
    if not with_memory:
        return
    if run.cluster.scheduler is None:
        shape = _local_shape(run.cluster)
        free = psutil.virtual_memory().available * shape.threads // shape.tasks
        has = min(shape.memory * shape.threads, free)
    else:
        with connect(run.cluster, Path()) as client:
            shape = worker_shape(client)
        has = shape.memory * shape.threads
    needed = process_memory(options, store, packing.capacity_per_task(*shape, options, store), shape.threads)
    message = (
        f"A process with {plural(shape.threads, 'task')} takes about {format_bytes(needed)} in the search: 400 MB, the "
        f"corpus if memory-mapped, and for each task its block, 64 MB and {packing.FEATURE_BYTES} bytes per feature; "
        f"it has {format_bytes(has)}"
    )
    if needed > has:
        yield warning("memory", f"{message}: set max_memory, or provide more.")
    else:
        yield ok("memory", f"{message}.")


def process_memory(options: SearchOptions, store: Store, capacity: packing.Capacity, threads: int) -> int:
    """Bytes of a process that searches with so many threads."""
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in range(1, options.epochs + 1))
    configurations = options.configurations()
    settings = search_settings(options, store)
    work: list[packing.Work] = [(each, own, milestones, None) for own in settings for each in configurations]
    jobs = packing.pack(work, options, store, capacity, resumable=False)
    largest = max(
        packing.state_bytes(job.block, store) + packing.evaluation_bytes(job.block, options.folds, store)
        for job in jobs
    )
    corpus = packing.corpus_bytes(store)
    task = largest + packing.CHUNK_BYTES + packing.FEATURE_BYTES * store.n_features
    return packing.PROCESS_BYTES + (corpus if corpus <= MAPPED_BYTES else 0) + threads * task
