"""sparseoco doctor: all checks of a run, and what it needs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import psutil
from dask.utils import format_bytes

from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.core.formatting import duration, integer, percent, plural
from sparseoco.execution.clusters import WorkerShape
from sparseoco.learners import find_algorithm
from sparseoco.ops.checks import (
    Finding,
    check_cluster,
    check_folder,
    check_inputs,
    check_machine,
    check_new_inputs,
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
from sparseoco.storage.locations import Location, free_bytes, is_local, local_work_folder
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.manifest import Manifest
from sparseoco.store.shards import Store
from sparseoco.text.counting import count_documents
from sparseoco.text.documents import Documents
from sparseoco.text.formats import SUFFIXES
from sparseoco.text.ingest import COMPRESSION, ingest, new_sources
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Sample, Slice, gap
from sparseoco.text.sources import Source, find_sources
from sparseoco.text.streams import UTF8
from sparseoco.training.block import search_settings
from sparseoco.training.options import SearchOptions
from sparseoco.training.stream import StreamPosition

# ----------------------------------------------------------------------------------------------------------------------
# What a run needs, from the sizes of its text and store: nothing is timed.
#
# The store is the one in the folder, or one of all the text if that is small. Of more text it is extrapolated from the
# stores of a sample and of half the sample, by a power law (Heaps' law).
#
#   memory of a process = 400 MB + 128 MB for other steps
#                         + the corpus, if it is small enough to be memory-mapped
#                         + tasks × (the largest block + 64 MB + 48 bytes per feature)
#   time of a search    = that of its blocks, by the costs of `search.packing`, spread over the tasks
#   time to read text   = bytes of text / (bytes that a processor reads in a second × tasks)


SLICE = 1 << 18
ENDINGS = {form: suffix for suffix, form in reversed(SUFFIXES.items())}
PARSED = {"encoding": UTF8, "include": (), "exclude": (), "format": "auto", "where": {}, "holdout": 0.0}
"""Options of the original files that do not apply to the sample."""
OTHERS_BYTES = 128 << 20  # for the steps before and after a search
COUNTED_BYTES = 10e6  # of text that a processor ingests in a second, with bigrams
EVALUATED_BYTES = 40e6  # of text that it predicts


class Extrapolation(NamedTuple):
    """The store expected of some sources, the share of the text that was read, and its rows that cannot be read."""

    store: Store
    sources: list[Source]
    share: float
    bad: int


def sampled(share: float) -> str:
    """What an estimate from this share of the text is based on."""
    return "all of the text" if share == 1.0 else f"a sample of {percent(share)} of the text"


def text_bytes(sources: Iterable[Source]) -> int:
    """Bytes of text; a byte of a compressed file counts as four, as in `shard_size`."""
    return sum(source.bytes * (COMPRESSION if source.compression else 1) for source in sources)


def extrapolate(inputs: Sequence[str], options: TextOptions, folder: Path, shard_bytes: int | None) -> Extrapolation:
    """The store that these inputs would give, by a sample ingested into `folder`.

    Raises `InputError` as the ingest of the inputs, for what the sample has of it.
    """
    sources = find_sources(list(inputs), options)
    sample = Sample(sources, options, SLICE)
    if sample.is_whole:
        manifest = ingest(list(inputs), folder / "all", options, shard_bytes=shard_bytes)
        return Extrapolation(Store(folder / "all", manifest), sources, 1.0, manifest.quarantined_rows)
    slices: dict[tuple[int, str], list[tuple[int, int, bytes]]] = {}  # numbers of splits, their bytes and documents
    for part in sample:
        source, ending = part.split.source, _ending(part)
        kept = [each for each in slices.get((source, ending), []) if each[0] % gap(part.number) == 0]
        slices[source, ending] = [*kept, (part.number, part.split.bytes, _content(part, options))]
    if not sample.rows:
        where = ": check the option where" if options.where else ""
        raise InputError(f"No document was read in {sampled(sample.share)}{where}.", code="no-documents")
    total = 0.0
    for (source, _), taken in slices.items():
        share = sample.sources_share * sum(size for _, size, _ in taken) / max(sample.totals[source], 1)
        total += sum(len(data) for *_, data in taken) / max(share, 1e-9)
    lenient = options.model_copy(update={"duplicates": "all", **PARSED})
    halves: list[tuple[Manifest, int]] = []
    for label, step in (("half", 2), ("all", 1)):
        (folder / f"{label}.text").mkdir()
        paths = {folder / f"{label}.text" / f"{source}{ending}": taken for (source, ending), taken in slices.items()}
        size = sum(path.write_bytes(b"".join(data for *_, data in taken[::step])) for path, taken in paths.items())
        manifest = ingest(list(map(str, paths)), folder / label, lenient, shard_bytes=shard_bytes)
        halves.append((manifest, size))
    (half, half_size), (every, size) = halves
    times, doublings = max(1.0, total / size), math.log2(max(1.01, size / half_size))
    whole = Store(folder / "all", _grown(half, every, times, doublings, options), Store(folder / "all", every).shards)
    return Extrapolation(whole, sources, sample.share, sample.bad)


def _ending(part: Slice) -> str:
    """The suffix of a file of documents: those that are given as counts keep their format."""
    if not isinstance(part.documents, Documents):
        return ENDINGS[part.split.format]
    return ".txt" if part.documents.labels is None else ".jsonl"


def _content(part: Slice, options: TextOptions) -> bytes:
    documents = part.documents
    if not isinstance(documents, Documents):
        assert isinstance(part.content, np.ndarray)
        return part.content[: part.split.bytes].tobytes()
    if documents.labels is None:
        return "".join(f"{text.replace(chr(10), ' ')}\n" for text in documents.texts()).encode()
    labels: Any = documents.labels
    columns = {options.id_field: documents.ids.to_pylist(), options.label_field: labels.tolist()}
    columns |= {options.columns[name]: values.tolist() for name, values in documents.columns.items()}
    columns |= {name: values.tolist() for name, values in documents.fields.items()}
    columns |= {} if options.fields else {options.text_field: documents.texts()}
    rows = zip(*columns.values(), strict=True)
    return b"".join(orjson.dumps(dict(zip(columns, row, strict=True))) + b"\n" for row in rows)


def _grown(half: Manifest, every: Manifest, times: float, doublings: float, options: TextOptions) -> Manifest:
    """The manifest of so many `times` the sample; half of it was `doublings` smaller."""

    def power(less: float, more: float, most: float) -> float:
        return min(most, max(0.0, math.log2(max(more, 1) / max(less, 1)) / doublings))

    features = every.features.count
    if options.hash_bits is None:
        features = round(features * times ** power(half.features.count, features, 1.0))
        features = min(features, options.max_features or features)
    denser = times ** power(half.nonzeros / max(half.rows, 1), every.nonzeros / max(every.rows, 1), 0.1)
    return every.model_copy(
        update={
            "rows": round(every.rows * times),
            "nonzeros": round(every.nonzeros * times * denser),
            "features": every.features.model_copy(update={"count": features}),
            "bytes": round(every.bytes * times * denser),
        }
    )


class Cost(NamedTuple):
    """The cost of a search and the training after it.

    Parameters
    ----------
    blocks : int
        Tasks of the search.
    memory, disk : int
        Bytes of a process; bytes of the memory-mapped corpus and of checkpoints.
    search_seconds, train_seconds : float
        Estimated times of the online learners.
    left_out : list of str
        Epoch methods, whose time is not included: packing has no costs of them.
    """

    blocks: int
    memory: int
    disk: int
    search_seconds: float
    train_seconds: float
    left_out: list[str]


def estimate_cost(options: SearchOptions, store: Store, shape: WorkerShape) -> Cost:
    """The cost of a search over a store.

    Raises `InputError`, with the figure, if not even one configuration fits in memory.
    """
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in range(1, options.epochs + 1))
    settings, configurations = search_settings(options, store), options.configurations()
    work = [(chosen, setting, milestones, None) for setting in settings for chosen in configurations]
    capacity = packing.capacity_per_task(*shape, options, store)
    jobs = packing.pack(work, options, store, capacity, resumable=False)
    states = [packing.state_bytes(job.block, store) for job in jobs]
    largest, corpus = max(states), packing.corpus_bytes(store)
    evaluations = [packing.evaluation_bytes(job.block, options.folds, store) for job in jobs]
    held = max(state + evaluation for state, evaluation in zip(states, evaluations, strict=True))
    online = [job for job in jobs if find_algorithm(job.block.algorithm).online]
    alone = [job._replace(block=job.block.select(job.block.configurations[:1])) for job in online]
    end, _ = packing.schedule([(_seconds(job, store), job.block.parts) for job in online], shape.tasks)
    return Cost(
        blocks=len(jobs),
        memory=packing.PROCESS_BYTES
        + OTHERS_BYTES
        + (corpus if corpus <= MAPPED_BYTES else 0)
        + shape.threads * (held + packing.CHUNK_BYTES + packing.FEATURE_BYTES * store.n_features),
        disk=corpus + 2 * min(shape.tasks, len(jobs)) * largest,
        search_seconds=end,
        train_seconds=max((_seconds(job, store) for job in alone), default=0.0),
        left_out=sorted({job.block.algorithm for job in jobs if job not in online}),
    )


def _seconds(job: packing.Job, store: Store) -> float:
    return packing.job_cost(job, store) * store.manifest.nonzeros / 1e9


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
    failed = run.cluster.scheduler is not None and any(finding.state == "error" for finding in dask)
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
    if run.cluster.scheduler is None:
        has = min(has, psutil.virtual_memory().available * shape.threads // shape.tasks)
    message = (
        f"A process with {plural(shape.threads, 'task')} takes about {format_bytes(cost.memory)}: 528 MB, the corpus "
        f"if memory-mapped, and for each task its block, 64 MB and {packing.FEATURE_BYTES} bytes per feature; it has "
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
        run = load_run_file(run_file, cluster_file)
    except SparseocoError as raised:
        yield error("run file", str(raised), raised.code)
        return
    yield from check_run(run)
