"""What a run of a run file would meet: its files, its cluster, and what it would take."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
from dask.utils import format_bytes

from sparseoco.config import RunFile
from sparseoco.doctor.cluster import Shape, look_at_cluster, shape_of
from sparseoco.doctor.estimate import Cost, cost_of
from sparseoco.doctor.findings import Finding, checked, doubtful, fine, wrong
from sparseoco.doctor.places import free_bytes, look_at_folder, look_at_inputs, sources_of
from sparseoco.doctor.sampling import guess
from sparseoco.manifest import latest_manifest
from sparseoco.report.wording import duration, integer, percent, plural
from sparseoco.shards import Store
from sparseoco.storage.locations import is_local, workplace

SLACK = 2.0  # of seconds that are told: half of them, or as often as many, are no surprise
BEGINNING_SECONDS = 4.0  # libraries are loaded, Dask is started


def look_at_run(run: RunFile) -> Iterator[Finding]:
    """All of it, what is quickly seen first."""
    yield from checked("inputs", lambda: look_at_inputs("inputs", run.ingest.inputs, run.ingest.text))
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
    manifest = latest_manifest(run.store)
    if manifest is not None:
        store = Store(run.store, manifest)
        yield from _told(run, shape, cost_of(run.search, store, store, shape), store, 0.0, told_by="its shards")
        return
    with tempfile.TemporaryDirectory(prefix="sparseoco-") as folder:
        found = guess(sources_of(run), run.ingest.text, Path(folder), run.ingest.shard_bytes)
        cost = cost_of(run.search, found.whole, found.sample, shape)
        told_by = f"a sample of {percent(found.share)} of the text"
        yield from _told(run, shape, cost, found.whole, found.seconds / shape.tasks, told_by=told_by)


def _told(
    run: RunFile, shape: Shape, cost: Cost, store: Store, ingest_seconds: float, *, told_by: str
) -> Iterator[Finding]:
    size = (
        f"{plural(store.n_rows, 'document')}, {plural(store.n_features, 'feature')}, "
        f"{integer(store.manifest.nonzeros)} nonzeros"
    )
    yield fine("what it takes", f"About {size}, by {told_by}.")
    yield _memory(cost, shape, here=run.cluster.where == "local")
    yield from _disk(run, cost, store)
    yield _time(cost, ingest_seconds)


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
    out = workplace(run.out)
    sentence = f"The run writes up to {format_bytes(needed)}, {format_bytes(shards)} of it shards that stay"
    free = free_bytes(out)
    yield (fine if free > needed else wrong)("disk", f"{sentence}; {format_bytes(free)} are free at {out}.")


def _time(cost: Cost, ingest_seconds: float) -> Finding:
    parts = [f"{duration(ingest_seconds)} to ingest"] if ingest_seconds else []
    if cost.search_seconds is not None and cost.train_seconds is not None:
        parts.append(f"{duration(cost.search_seconds)} to search ({plural(cost.blocks, 'block')} of configurations)")
        parts.append(f"{duration(cost.train_seconds)} to train")
    total = BEGINNING_SECONDS + ingest_seconds + (cost.search_seconds or 0.0) + (cost.train_seconds or 0.0)
    sentence = f"About {duration(total)} on a machine that does nothing else: {', '.join(parts) or 'little'}"
    sentence += "; half or twice that would be no surprise. Text to evaluate on comes on top."
    if cost.left_out:
        return doubtful("time", f"{sentence} {', '.join(cost.left_out)} cannot be told beforehand, and are not in it.")
    return fine("time", sentence)
