"""Checks of a run file: its files, its cluster, and the memory, disk space and time of the run."""

from collections.abc import Iterator
from typing import NamedTuple

import psutil
from dask.utils import format_bytes

from sparseoco.core.errors import SparseocoError
from sparseoco.core.formatting import duration, integer, percent, plural
from sparseoco.ops.doctor.cluster import Shape, check_cluster, cluster_shape
from sparseoco.ops.doctor.estimate import Cost, estimate_cost
from sparseoco.ops.doctor.findings import Finding, error, ok, run_check, warning
from sparseoco.ops.doctor.paths import (
    check_folder,
    check_inputs,
    check_new_inputs,
    free_bytes,
    is_nightly,
    run_sources,
)
from sparseoco.ops.doctor.sampling import extrapolate
from sparseoco.pipeline.run_file import RunFile
from sparseoco.storage.locations import is_local, local_work_folder
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.shards import Store
from sparseoco.text.sources import find_sources

STARTUP_SECONDS = 4.0  # imports and the Dask cluster


class _Text(NamedTuple):
    """Seconds spent on raw text."""

    ingest_seconds: float
    evaluate_seconds: float


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
    if run.cluster.where == "address" and any(finding.state == "error" for finding in dask):
        yield warning("resources", "They cannot be estimated until the cluster has no errors.")
    else:
        yield from run_check("resources", lambda: _cost(run, cluster_shape(run.cluster)))


def _cost(run: RunFile, shape: Shape) -> Iterator[Finding]:
    store = Store.find(run.store)
    with temporary_folder() as folder:
        if store is not None:
            whole = sample = store
            basis, ingest_seconds = "its shards", 0.0
        else:
            result = extrapolate(run_sources(run), run.ingest.text, folder, run.ingest.shard_bytes)
            whole, sample, basis = result.whole, result.sample, f"a sample of {percent(result.share)} of the text"
            ingest_seconds = result.seconds / shape.tasks
        cost = estimate_cost(run.search.for_store(whole).for_size(whole), whole, sample, shape)
        evaluate_seconds = 0.0
        try:
            evaluate_seconds = _evaluation(run)
        except SparseocoError as raised:  # which must not hide the other estimates
            yield error("evaluate", str(raised))
        yield from _report(run, shape, cost, whole, _Text(ingest_seconds, evaluate_seconds), basis=basis)


def _evaluation(run: RunFile) -> float:
    """Seconds to evaluate: about those of counting the text in one thread."""
    if is_nightly(run) or not (run.evaluate.names_test_set or run.text.holdout):
        return 0.0
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    options = run.ingest.text.model_copy(update={"where": run.evaluate.where})
    with temporary_folder() as folder:
        return extrapolate(find_sources(list(inputs), options), options, folder, run.ingest.shard_bytes).seconds


def _report(run: RunFile, shape: Shape, cost: Cost, store: Store, text: _Text, *, basis: str) -> Iterator[Finding]:
    size = (
        f"{plural(store.n_rows, 'document')}, {plural(store.n_features, 'feature')}, "
        f"{integer(store.manifest.nonzeros)} nonzeros"
    )
    if store.n_classes is not None and len(store.classes) == 1:
        yield warning("labels", f"There is one class only ({store.classes[0]}) in {basis}: a classifier needs two.")
    yield ok("resources", f"About {size}, from {basis}.")
    yield _memory(cost, shape, here=run.cluster.where == "local")
    yield from _disk(run, cost, store)
    yield _time(cost, text)


def _memory(cost: Cost, shape: Shape, *, here: bool) -> Finding:
    has = shape.memory * shape.threads
    if here:
        has = min(has, psutil.virtual_memory().available * shape.threads // shape.tasks)
    message = (
        f"A process with {plural(shape.threads, 'task')} takes about {format_bytes(cost.memory)}: 528 MB, the corpus "
        "if memory-mapped, and for each task its block, 64 MB and 40 bytes per feature"
    )
    if cost.memory > has:
        return warning("memory", f"{message}; it has {format_bytes(has)}: set max_memory, or provide more.")
    return ok("memory", f"{message}; it has {format_bytes(has)}.")


def _disk(run: RunFile, cost: Cost, store: Store) -> Iterator[Finding]:
    shards = store.manifest.bytes
    needed = cost.disk + 2 * shards  # text is staged while it is counted
    out = local_work_folder(run.out)
    message = f"The run writes up to {format_bytes(needed)}, of which {format_bytes(shards)} are shards"
    free = free_bytes(out)
    yield (ok if free > needed else error)("disk", f"{message}; {format_bytes(free)} are free at {out}.")


def _time(cost: Cost, text: _Text) -> Finding:
    parts = [f"{duration(STARTUP_SECONDS)} to start"]
    if text.ingest_seconds:
        parts.append(f"{duration(text.ingest_seconds)} to ingest")
    if cost.search_seconds is not None and cost.train_seconds is not None:
        parts.append(f"{duration(cost.search_seconds)} to search ({plural(cost.blocks, 'block')} of configurations)")
        parts.append(f"{duration(cost.train_seconds)} to train")
    if text.evaluate_seconds:
        parts.append(f"{duration(text.evaluate_seconds)} to evaluate")
    total = STARTUP_SECONDS + sum(text) + (cost.search_seconds or 0.0) + (cost.train_seconds or 0.0)
    message = (
        f"About {duration(total)} on an idle machine, within a factor of two: {', '.join(parts)}. "
        "The first run compiles the learners, which takes up to a minute more."
    )
    if cost.left_out:
        names = ", ".join(cost.left_out)
        return warning("time", f"{message} Not included: {names}, whose time cannot be estimated.")
    return ok("time", message)
