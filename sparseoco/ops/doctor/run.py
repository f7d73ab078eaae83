"""What a run of a run file would meet: its files, its cluster, and what it would take."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
from dask.utils import format_bytes

from sparseoco.core.errors import SparseocoError
from sparseoco.ops.doctor.cluster import Shape, look_at_cluster, shape_of
from sparseoco.ops.doctor.estimate import Cost, cost_of
from sparseoco.ops.doctor.findings import Finding, checked, doubtful, fine, wrong
from sparseoco.ops.doctor.places import (
    by_night,
    free_bytes,
    look_at_folder,
    look_at_inputs,
    look_at_new_inputs,
    sources_of,
)
from sparseoco.ops.doctor.sampling import guess
from sparseoco.pipeline.run_file import RunFile
from sparseoco.report.wording import duration, integer, percent, plural
from sparseoco.storage.locations import is_local, local_work_folder
from sparseoco.store.manifest import latest_manifest
from sparseoco.store.shards import Store
from sparseoco.text.sources import find_sources

BEGINNING_SECONDS = 4.0  # libraries are loaded, Dask is started


class _Text(NamedTuple):
    """Seconds that are spent on raw text."""

    ingest_seconds: float = 0.0
    evaluate_seconds: float = 0.0


def look_at_run(run: RunFile) -> Iterator[Finding]:
    """All of it, what is quickly seen first."""
    yield from checked("inputs", lambda: look_at_new_inputs(run))
    if run.evaluate is not None and run.evaluate.inputs is not None:
        inputs = run.evaluate.inputs
        yield from checked("evaluate", lambda: look_at_inputs("evaluate", inputs, run.ingest.text))
    yield from checked("out", lambda: look_at_folder("out", run.out))
    if run.ingest.store is not None:
        yield from checked("store", lambda: look_at_folder("store", run.store))
    shared = run.out if run.out.exists() or not is_local(run.out) else None
    dask = list(checked("Dask", lambda: look_at_cluster(run.cluster, shared)))
    yield from dask
    if run.cluster.where == "address" and any(finding.state == "wrong" for finding in dask):
        yield doubtful("what it takes", "That is told of a cluster with which nothing is wrong.")
    else:
        yield from checked("what it takes", lambda: _cost(run, shape_of(run.cluster)))


def _cost(run: RunFile, shape: Shape) -> Iterator[Finding]:
    text = _Text()
    try:
        text = text._replace(evaluate_seconds=_evaluation(run))
    except SparseocoError as error:  # which must not hide what all else takes
        yield wrong("evaluate", str(error))
    manifest = latest_manifest(run.store)
    if manifest is not None:
        store = Store(run.store, manifest)
        yield from _told(run, shape, cost_of(run.search, store, store, shape), store, text, told_by="its shards")
        return
    with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
        found = guess(sources_of(run), run.ingest.text, Path(folder), run.ingest.shard_bytes)
        cost = cost_of(run.search, found.whole, found.sample, shape)
        told_by = f"a sample of {percent(found.share)} of the text"
        text = text._replace(ingest_seconds=found.seconds / shape.tasks)
        yield from _told(run, shape, cost, found.whole, text, told_by=told_by)


def _evaluation(run: RunFile) -> float:
    """Seconds that reading and predicting the text to evaluate on takes: about those of counting it, in one thread."""
    if run.evaluate is None or by_night(run):
        return 0.0
    inputs = run.evaluate.inputs if run.evaluate.inputs is not None else run.ingest.inputs
    options = run.ingest.text.model_copy(update={"where": run.evaluate.where})
    with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
        return guess(find_sources(list(inputs), options), options, Path(folder), run.ingest.shard_bytes).seconds


def _told(run: RunFile, shape: Shape, cost: Cost, store: Store, text: _Text, *, told_by: str) -> Iterator[Finding]:
    size = (
        f"{plural(store.n_rows, 'document')}, {plural(store.n_features, 'feature')}, "
        f"{integer(store.manifest.nonzeros)} nonzeros"
    )
    yield fine("what it takes", f"About {size}, by {told_by}.")
    yield _memory(cost, shape, here=run.cluster.where == "local")
    yield from _disk(run, cost, store)
    yield _time(cost, text)


def _memory(cost: Cost, shape: Shape, *, here: bool) -> Finding:
    has = shape.memory * shape.threads
    if here:
        has = min(has, psutil.virtual_memory().available * shape.threads // shape.tasks)
    sentence = (
        f"A process with {plural(shape.threads, 'task')} at once takes about {format_bytes(cost.memory)}: 528 MB, the "
        "corpus where it is mapped, and for each task its block, 64 MB and 40 bytes a feature"
    )
    if cost.memory > has:
        return doubtful("memory", f"{sentence}; it has {format_bytes(has)}: set max_memory, or give it more.")
    return fine("memory", f"{sentence}; it has {format_bytes(has)}.")


def _disk(run: RunFile, cost: Cost, store: Store) -> Iterator[Finding]:
    shards = sum(entry.bytes for entry in store.manifest.shards)
    needed = cost.disk + 2 * shards  # text is staged while it is counted
    out = local_work_folder(run.out)
    sentence = f"The run writes up to {format_bytes(needed)}, {format_bytes(shards)} of it shards that stay"
    free = free_bytes(out)
    yield (fine if free > needed else wrong)("disk", f"{sentence}; {format_bytes(free)} are free at {out}.")


def _time(cost: Cost, text: _Text) -> Finding:
    parts = [f"{duration(BEGINNING_SECONDS)} to begin"]
    if text.ingest_seconds:
        parts.append(f"{duration(text.ingest_seconds)} to ingest")
    if cost.search_seconds is not None and cost.train_seconds is not None:
        parts.append(f"{duration(cost.search_seconds)} to search ({plural(cost.blocks, 'block')} of configurations)")
        parts.append(f"{duration(cost.train_seconds)} to train")
    if text.evaluate_seconds:
        parts.append(f"{duration(text.evaluate_seconds)} to evaluate")
    total = BEGINNING_SECONDS + sum(text) + (cost.search_seconds or 0.0) + (cost.train_seconds or 0.0)
    sentence = f"About {duration(total)} on a machine that does nothing else: {', '.join(parts)}"
    sentence += "; half or twice that would be no surprise."
    if cost.left_out:
        names = ", ".join(cost.left_out)
        return doubtful("time", f"{sentence} Not in it: {names}, of which no time can be told.")
    return fine("time", sentence)
