"""sparseoco doctor: all checks of a run."""

from collections.abc import Iterator, Sequence

import psutil
from dask.utils import format_bytes

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.formatting import duration, integer, plural
from sparseoco.ops.checks import (
    Finding,
    check_cluster,
    check_folder,
    check_inputs,
    check_machine,
    check_new_inputs,
    cluster_shape,
    error,
    free_bytes,
    is_nightly,
    ok,
    prefect,
    run_check,
    text_options,
    warning,
)
from sparseoco.ops.estimate import (
    COUNTED_BYTES,
    EVALUATED_BYTES,
    SLICE,
    Extrapolation,
    estimate_cost,
    extrapolate,
    sampled,
    text_bytes,
)
from sparseoco.pipeline.evaluation import NO_TEST_DOCUMENTS, NO_TEST_LABELS
from sparseoco.pipeline.run_file import RunFile, load_cluster_file, load_run_file, name_keys
from sparseoco.pipeline.steps import options_for_search, with_models
from sparseoco.search.packing import FEATURE_BYTES
from sparseoco.storage.locations import Location, is_local, local_work_folder
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.shards import Store
from sparseoco.text.counting import count_documents
from sparseoco.text.ingest import new_sources
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Sample
from sparseoco.text.sources import Source, find_sources
from sparseoco.training.options import SearchOptions

# ----------------------------------------------------------------------------------------------------------------------
# Checks of a run file: its files, its cluster, and the memory, disk space and time of the run.


STARTUP_SECONDS = 4.0  # imports and the Dask cluster
OF_LABELS = frozenset({"one-class", "invalid-labels"})
"""Errors of the labels of a sample that those of the whole text may not have."""


def check_run(run: RunFile) -> Iterator[Finding]:
    """All checks of a run, the fastest first."""
    yield from run_check("inputs", lambda: check_new_inputs(run))
    if run.evaluate.inputs is not None:
        inputs = run.evaluate.inputs
        yield from run_check("evaluate", lambda: check_inputs("evaluate", inputs, run.ingest.text))
    yield from run_check("out", lambda: check_folder("out", run.out))
    if run.ingest.store is not None:
        yield from run_check("store", lambda: check_folder("store", run.store))
    shared = run.out if run.out.exists() or not is_local(run.out) else None
    dask = list(run_check("Dask", lambda: check_cluster(run.cluster, shared)))
    yield from dask
    failed = run.cluster.where == "address" and any(finding.state == "error" for finding in dask)
    yield from run_check("inputs", lambda: _check_text(run, cluster_failed=failed))


def _check_text(run: RunFile, *, cluster_failed: bool) -> Iterator[Finding]:
    """Read the text, or a sample of it, as the steps of the run will, and estimate what they need."""
    options, store = text_options(run), Store.find(run.store)
    with temporary_folder() as folder:
        if store is None:
            text = extrapolate(run.ingest.inputs, options, folder, run.ingest.shard_bytes)
            yield from _bad_rows(text.bad, text.share, options)
        else:
            if store.classes:
                options = options.with_classes(store.classes)
            sources = find_sources(list(run.ingest.inputs), options, may_be_empty=True)
            text = Extrapolation(store, new_sources(sources, options, store), 1.0, 0)
            new = Sample(text.sources, options, SLICE)
            try:
                for _ in new:  # raises as the ingest would
                    pass
            except InputError as raised:
                if not is_nightly(run):
                    raise
                left_out = "A nightly run leaves such a file out, and fails if no other is new."
                yield warning("inputs", f"{raised} {left_out}", raised.code)
            yield from _bad_rows(new.bad, new.share, options)
        basis = sampled(text.share) if store is None else "its shards"
        try:
            search = options_for_search(text.store, run.search)
            if text.share == 1.0:
                search = with_models(search, text.store, run.out / "model")
        except SparseocoError as raised:
            message = str(raised).replace(str(text.store.folder), str(run.store))
            if text.share < 1.0 and raised.code in OF_LABELS:
                yield warning("search", f"{message} This is of {basis}.", raised.code)
            else:
                yield error("search", message, raised.code)
            return
        tested: list[Source] = []
        try:
            tested = _check_test_set(run, text)
        except SparseocoError as raised:  # which must not hide the other findings
            yield error("evaluate", str(raised), raised.code)
        if cluster_failed:
            yield warning("resources", "They cannot be estimated until the cluster has no errors.")
        else:
            yield from run_check("resources", lambda: _resources(run, search, text, basis, tested))


def _bad_rows(bad: int, share: float, options: TextOptions) -> Iterator[Finding]:
    """How many rows cannot be read, if no more than are allowed were found."""
    if not bad:
        return
    message = f"{plural(bad, 'row')} of {sampled(share)} cannot be read, and max_bad_rows is {options.max_bad_rows:,}"
    if bad / share > options.max_bad_rows:
        yield warning("inputs", f"{message}: the ingest will probably find more.")
    else:
        yield ok("inputs", f"{message}.")


def _check_test_set(run: RunFile, text: Extrapolation) -> list[Source]:
    """Read the test set, or a sample of it; gives its sources."""
    if is_nightly(run) or not (run.evaluate.names_test_set or run.text.holdout):
        return []
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    options = run.text.without_columns()
    if run.evaluate.names_test_set:
        options = options.model_copy(update={"where": run.evaluate.where})
    if text.share == 1.0 and text.store.classes:
        options = options.with_classes(text.store.classes)
    sources = find_sources(list(inputs), options)
    sample = Sample(sources, options, SLICE, withheld=options.holdout > 0)
    for part in sample:
        if part.documents.labels is None:
            raise InputError(NO_TEST_LABELS, code="no-labels")
        count_documents(part.documents, options)  # raises for documents without what the options count
    if sample.is_whole and not sample.rows and run.evaluate.names_test_set:
        raise InputError(NO_TEST_DOCUMENTS, code="no-documents")
    return sources


def _resources(
    run: RunFile, search: SearchOptions, text: Extrapolation, basis: str, tested: Sequence[Source]
) -> Iterator[Finding]:
    """Memory, disk space and time of a run that ingests the text and evaluates on the tested sources."""
    shape, store = cluster_shape(run.cluster), text.store
    cost = estimate_cost(search, store, shape)
    documents, features = plural(store.n_rows, "document"), plural(store.n_features, "feature")
    size = f"About {documents}, {features}, {integer(store.manifest.nonzeros)} nonzeros"
    yield ok("resources", f"{size}, from {basis}.")
    has = shape.memory * shape.threads
    if run.cluster.where == "local":
        has = min(has, psutil.virtual_memory().available * shape.threads // shape.tasks)
    message = (
        f"A process with {plural(shape.threads, 'task')} takes about {format_bytes(cost.memory)}: 528 MB, the corpus "
        f"if memory-mapped, and for each task its block, 64 MB and {FEATURE_BYTES} bytes per feature; it has "
        f"{format_bytes(has)}"
    )
    if cost.memory > has:
        yield warning("memory", f"{message}: set max_memory, or provide more.")
    else:
        yield ok("memory", f"{message}.")
    shards, out = store.manifest.bytes, local_work_folder(run.out)
    needed, free = cost.disk + 2 * shards, free_bytes(out)  # text is staged while it is counted
    message = f"The run writes up to {format_bytes(needed)}, of which {format_bytes(shards)} are shards"
    yield (ok if free > needed else error)("disk", f"{message}; {format_bytes(free)} are free at {out}.")
    steps = {
        "start": STARTUP_SECONDS,
        "ingest": text_bytes(text.sources) / COUNTED_BYTES / shape.tasks,
        f"search ({plural(cost.blocks, 'block')} of configurations)": cost.search_seconds,
        "train": cost.train_seconds,
        "evaluate": text_bytes(tested) / EVALUATED_BYTES,
    }
    parts = ", ".join(f"{duration(seconds)} to {step}" for step, seconds in steps.items() if seconds)
    message = (
        f"About {duration(sum(steps.values()))} on an idle machine, by measured rates: {parts}. "
        "The first run compiles the learners, which takes up to a minute more."
    )
    if cost.left_out:
        yield warning("time", f"{message} Not included: {', '.join(cost.left_out)}, whose time is not estimated.")
    else:
        yield ok("time", message)


# ----------------------------------------------------------------------------------------------------------------------
# Checks before a run: what is installed and reachable, and the memory and time the run would take.


__all__ = ["Finding", "examine"]

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
        run = load_run_file(run_file)
        if cluster_file is not None:
            run = run.model_copy(update={"cluster": load_cluster_file(cluster_file)})
    except SparseocoError as raised:
        yield error("run file", str(raised), raised.code)
        return
    yield from check_run(run)
