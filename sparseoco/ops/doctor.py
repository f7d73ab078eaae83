"""sparseoco doctor: all checks of a machine and of a run."""

from collections.abc import Iterator
from pathlib import Path

import psutil
from dask.utils import format_bytes

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.formatting import integer, percent, plural
from sparseoco.ops.checks import (
    Finding,
    check_cluster,
    check_folder,
    check_inputs,
    check_machine,
    cluster_shape,
    error,
    is_nightly,
    ok,
    prefect,
    run_check,
    text_options,
    warning,
)
from sparseoco.pipeline.evaluation import NO_TEST_DOCUMENTS, NO_TEST_LABELS
from sparseoco.pipeline.run_file import RunFile, load_run_file, name_keys
from sparseoco.search import packing
from sparseoco.search.run import options_for_search, with_models
from sparseoco.storage.locations import Location, is_local
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.shards import Store
from sparseoco.text.counting import count_documents
from sparseoco.text.increments import new_sources
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Sample
from sparseoco.text.sources import find_sources
from sparseoco.training.block import search_settings
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import StreamPosition

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
    yield from run_check("this machine", check_machine)
    yield from run_check("Prefect", prefect)
    if run_file is None:
        return
    try:
        run = load_run_file(run_file, cluster_file)
    except SparseocoError as raised:
        yield error("run file", str(raised), raised.code)
        return
    yield from check_run(run)


def check_run(run: RunFile) -> Iterator[Finding]:
    """All checks of a run, the fastest first."""
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
    options, store = text_options(run), Store.find(run.store)
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
    shape = cluster_shape(run.cluster)
    needed = process_memory(options, store, packing.capacity_per_task(*shape, options, store), shape.threads)
    has = shape.memory * shape.threads
    if run.cluster.scheduler is None:
        has = min(has, psutil.virtual_memory().available * shape.threads // shape.tasks)
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
    work = [(each, setting, milestones, None) for setting in search_settings(options, store) for each in configurations]
    jobs = packing.pack(work, options, store, capacity, resumable=False)
    largest = max(
        packing.state_bytes(job.block, store) + packing.evaluation_bytes(job.block, options.folds, store)
        for job in jobs
    )
    corpus = packing.corpus_bytes(store)
    task = largest + packing.CHUNK_BYTES + packing.FEATURE_BYTES * store.n_features
    return packing.PROCESS_BYTES + (corpus if corpus <= MAPPED_BYTES else 0) + threads * task
