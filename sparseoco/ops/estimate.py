"""The time of an epoch of an epoch method, estimated from epochs over a few of the rows.

An epoch reads the rows a known number of times (a pass, its rounds, and a pass that evaluates it), and all
features × columns: seconds = a·rows + b. Epochs in this process over some rows and over an eighth of them, with all the
features, give a and b.
"""

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
from scipy.sparse import csr_matrix

from sparseoco.core.errors import InputError
from sparseoco.core.formatting import percent
from sparseoco.kernels.columns import RowBatch
from sparseoco.learners import find_algorithm
from sparseoco.offline.cluster.methods import epoch_problem
from sparseoco.offline.epochs import CoordinateEpochs, EpochProblem, SampledEpochs
from sparseoco.offline.passes import LocalPasses, column_major
from sparseoco.ops.checks import Shape
from sparseoco.search.packing import (
    CHUNK_BYTES,
    FEATURE_BYTES,
    PROCESS_BYTES,
    BlockKey,
    Capacity,
    Job,
    capacity_per_task,
    corpus_bytes,
    pack,
    state_bytes,
)
from sparseoco.search.results import new_learner
from sparseoco.storage.temporary import temporary_folder
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.manifest import Manifest
from sparseoco.store.segments import shard_totals
from sparseoco.store.shards import Store
from sparseoco.store.transpose import cut_shard, merge_range
from sparseoco.text.documents import Documents
from sparseoco.text.ingest import ingest
from sparseoco.text.options import TextOptions
from sparseoco.text.readers import Sample, Slice, gap
from sparseoco.text.sources import SUFFIXES, find_sources
from sparseoco.text.streams import UTF8
from sparseoco.training.block import Block, search_setting
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

TRIAL_BYTES = 1 << 29  # of a block's state in a trial; of a larger one fewer columns are tried
TRIAL_PRODUCTS = 1 << 25  # nonzeros × columns of the rows in a trial
MIN_ROWS = 256
ROWS_RATIO = 8
EPOCH_WARM_ROWS = 16
TRIALS = 2


def epoch_seconds(block: Block, whole: Store, rows: RowBatch, denser: float) -> float | None:
    """Seconds of an epoch of a block over a whole store of similar rows, with `denser` times as many nonzeros.

    None if not even one configuration's state is small enough for a trial, or if the rounds are split over workers,
    whose communication is not measured.
    """
    single = state_bytes(block.select(block.configurations[:1]), whole)
    tried = block.select(block.configurations[: max(1, min(len(block.configurations), TRIAL_BYTES // max(single, 1)))])
    if single > TRIAL_BYTES or block.configurations[0].get("placement", "serial") != "serial":
        return None
    problem = epoch_problem(tried, whole)
    n_rows = len(rows.labels)
    products = rows.indices.size / max(n_rows, 1) * len(problem.configurations) * problem.outputs
    more = min(n_rows, max(MIN_ROWS, int(TRIAL_PRODUCTS / max(products, 1e-9))))
    less = max(1, more // ROWS_RATIO)
    _seconds(problem, whole, rows, min(EPOCH_WARM_ROWS, less))  # compiles
    slow, fast = (min(_seconds(problem, whole, rows, count) for _ in range(TRIALS)) for count in (more, less))
    a = max(slow - fast, 0.0) / max(more - less, 1)
    b = max(fast - a * less, 0.0)
    return (a * denser * whole.n_rows + b) * len(block.configurations) / len(tried.configurations)


def transpose_seconds(whole: Store, sample: Store) -> float:
    """Seconds to transpose a store, which coordinate methods do first, estimated from one shard."""
    largest = int(np.argmax(sample.shards.column("nonzeros")))
    shards = sample.shards[largest : largest + 1]
    totals = shard_totals(shards)
    part = Store(sample.folder, sample.manifest.model_copy(update=dict(totals)), shards)
    edges = [0, part.n_features]
    with temporary_folder() as folder:
        started = time.thread_time()
        cut_shard(part, 0, edges, folder)
        merge_range(part, edges, 0, folder, folder)
        return (time.thread_time() - started) * whole.manifest.nonzeros / max(totals.nonzeros, 1)


def _seconds(problem: EpochProblem, whole: Store, rows: RowBatch, count: int) -> float:
    """Processor seconds of an epoch over the first `count` rows."""
    indptr, indices, counts, labels, _ = rows
    last = indptr[count]
    shape = (count, problem.n_features)
    matrix = csr_matrix((counts[:last].astype(np.float64), indices[:last], indptr[: count + 1]), shape=shape)
    fewer = tuple(_fewer_rounds(each, count / max(whole.n_rows, 1)) for each in problem.configurations)
    problem = problem._replace(configurations=fewer)
    method: SampledEpochs | CoordinateEpochs
    started = time.thread_time()
    if problem.algorithm.samples_features:
        method = CoordinateEpochs(problem, column_major(matrix, labels[:count]), 0)
    else:
        method = SampledEpochs(problem, LocalPasses.of(matrix, labels[:count]), 0)
    method.play()
    method.objectives()
    return time.thread_time() - started


def _fewer_rounds(configuration: Mapping[str, Any], share: float) -> dict[str, Any]:
    """As many rounds per epoch as correspond to this share of the rows."""
    rounds = configuration["rounds"]
    return {**configuration, "rounds": rounds if rounds == "pass" else max(1, round(rounds * share))}


# ----------------------------------------------------------------------------------------------------------------------
# A sample of raw text, and the store of all of it, extrapolated from the growth of the sample's vocabulary.
#
# Small inputs are ingested as a whole. Of others, the store is extrapolated from those of half the sample and of all
#     of
# it, by a power law (Heaps' law).


SLICE = 1 << 18
ENDINGS = {form: suffix for suffix, form in reversed(SUFFIXES.items())}
PARSED = {"encoding": UTF8, "include": (), "exclude": (), "format": "auto", "where": {}, "holdout": 0.0}
"""Options of the original files that do not apply to the sample."""


class Extrapolation(NamedTuple):
    """The store of a sample; the whole store expected, and the processor seconds to build it; the sample's share of the
    text, and its rows that cannot be read."""

    sample: Store
    whole: Store
    seconds: float
    share: float
    bad: int


def sampled(share: float) -> str:
    """What an estimate from this share of the text is based on."""
    return "all of the text" if share == 1.0 else f"a sample of {percent(share)} of the text"


def extrapolate(inputs: Sequence[str], options: TextOptions, folder: Path, shard_bytes: int | None) -> Extrapolation:
    """The store that these inputs would give, by a sample ingested into `folder`.

    Raises `InputError` as the ingest of the inputs, for what the sample has of it.
    """
    sample = Sample(find_sources(list(inputs), options), options, SLICE)
    if sample.is_whole:
        manifest, seconds = _ingest(list(inputs), folder / "all", options, shard_bytes)
        store = Store(folder / "all", manifest)
        return Extrapolation(store, store, seconds, 1.0, manifest.quarantined_rows)
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
    halves: list[tuple[Manifest, int, float]] = []
    for label, step in (("half", 2), ("all", 1)):
        (folder / f"{label}.text").mkdir()
        paths, size = [], 0
        for (source, ending), taken in slices.items():
            path = folder / f"{label}.text" / f"{source}{ending}"
            path.write_bytes(b"".join(data for *_, data in taken[::step]))
            paths.append(str(path))
            size += path.stat().st_size
        manifest, seconds = _ingest(paths, folder / label, lenient, shard_bytes)
        halves.append((manifest, size, seconds))
    (half, half_size, _), (every, size, seconds) = halves
    times, doublings = max(1.0, total / size), math.log2(max(1.01, size / half_size))
    whole = Store(folder / "all", _grown(half, every, times, doublings, options), Store(folder / "all", every).shards)
    return Extrapolation(Store(folder / "all", every), whole, seconds * times, sample.share, sample.bad)


def _ingest(inputs: list[str], out: Path, options: TextOptions, shard_bytes: int | None) -> tuple[Manifest, float]:
    """The manifest of an ingest, and its processor seconds in all threads."""
    started = time.process_time()
    return ingest(inputs, out, options, shard_bytes=shard_bytes), time.process_time() - started


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


# ----------------------------------------------------------------------------------------------------------------------
# The memory of a run, by the formula that sizes blocks, and its time, by short trials of its kernels.
#
#     memory of a process = 400 MB + 128 MB for other steps
#                           + the corpus, if it is small enough to be memory-mapped
#                           + tasks × (the largest block + 64 MB + 48 bytes per feature)
#     time of the search  = Σ over blocks of epochs × (time an epoch of such a block), spread over the tasks
#
# The time is processor time: of an online method, of the first rows of a block as wide as the search's, per nonzero;
#     of
# an epoch method, of epochs over a few rows (`doctor.epochs`).


OTHERS_BYTES = 128 << 20  # for the steps before and after a search
TRIAL_SECONDS = 0.4  # per kind of block
TRIAL_ROWS = 4096
WARM_ROWS = 64


class Cost(NamedTuple):
    """The cost of a search and the training after it; seconds are None if nothing could be measured.

    Parameters
    ----------
    blocks : int
        Tasks of the search.
    memory, disk : int
        Bytes of a process; bytes of the memory-mapped corpus and of checkpoints.
    search_seconds, train_seconds : float or None
        Estimated times.
    left_out : list of str
        Learners whose time cannot be estimated and is not included (`doctor.epochs`).
    """

    blocks: int
    memory: int
    disk: int
    search_seconds: float | None
    train_seconds: float | None
    left_out: list[str]


def estimate_cost(options: SearchOptions, whole: Store, sample: Store, shape: Shape) -> Cost:
    """The cost of a search over `whole`, whose rows are like those of `sample`.

    Raises `InputError`, with the figure, if not even one configuration fits in memory.
    """
    jobs = _jobs(options, whole, capacity_per_task(*shape, options, whole))
    trials = _trials(jobs, whole, sample)
    seconds = [len(job.milestones) * each for job in jobs if (each := trials[_kind(job.block)]) is not None]
    left_out = sorted({job.block.algorithm for job in jobs if trials[_kind(job.block)] is None})
    by_columns = any(find_algorithm(job.block.algorithm).samples_features for job in jobs)
    transposing = transpose_seconds(whole, sample) / shape.tasks if by_columns else 0.0
    cheapest = min((each for each in trials.values() if each is not None), default=0.0)
    largest = max(state_bytes(job.block, whole) for job in jobs)
    return Cost(
        blocks=len(jobs),
        memory=process_memory(whole, largest, shape.threads),
        disk=corpus_bytes(whole) + 2 * min(shape.tasks, len(jobs)) * largest,
        search_seconds=transposing + _spread(seconds, shape.tasks) if seconds else None,
        train_seconds=transposing + options.epochs * cheapest if seconds else None,
        left_out=left_out,
    )


def process_memory(store: Store, block: int, threads: int) -> int:
    """Bytes of a process with so many concurrent tasks, each with a block of so many bytes."""
    corpus = corpus_bytes(store)
    tasks = threads * (block + CHUNK_BYTES + FEATURE_BYTES * store.n_features)
    return PROCESS_BYTES + OTHERS_BYTES + (corpus if corpus <= MAPPED_BYTES else 0) + tasks


def _jobs(options: SearchOptions, store: Store, room: Capacity) -> list[Job]:
    milestones = tuple(StreamPosition(epoch, store.n_rows) for epoch in range(1, options.epochs + 1))
    packs: dict[BlockKey, list[Configuration]] = {}
    for fold in range(options.folds) if options.folds > 1 else [NO_FOLD]:
        setting = search_setting(options, store, fold)
        for chosen in options.configurations():
            packs.setdefault(BlockKey.of(setting, milestones, None, chosen), []).append(chosen)
    return pack(packs, options, store, room, resumable=False)


def _kind(block: Block) -> tuple[str, str, int]:
    """What determines a block's time: its algorithm, static parameters, and width."""
    static = find_algorithm(block.algorithm).static_values(block.configurations[0])
    return block.algorithm, repr(static), len(block.configurations)


def _trials(jobs: Sequence[Job], whole: Store, sample: Store) -> dict[tuple[str, str, int], float | None]:
    """Seconds of an epoch over the whole store, for each kind of block; None if it could not be measured."""
    rows = _rows(sample)
    denser = (whole.manifest.nonzeros / max(whole.n_rows, 1)) / max(rows.indices.size / max(len(rows.labels), 1), 1e-9)
    return {
        kind: whole.n_rows * denser * _row_seconds(block, whole, rows)
        if find_algorithm(block.algorithm).online
        else epoch_seconds(block, whole, rows, denser)
        for kind, block in {_kind(job.block): job.block for job in jobs}.items()
    }


def _row_seconds(block: Block, whole: Store, rows: RowBatch) -> float:
    """Seconds per row, after compilation."""
    indptr, indices, counts, labels, _ = rows
    shrunk = min(1.0, TRIAL_BYTES / max(state_bytes(block, whole), 1))
    n_features = max(int(indices.max(initial=0)) + 1, round(whole.n_features * shrunk))
    manifest = whole.manifest
    tried = Store(
        whole.folder,
        manifest.model_copy(update={"features": manifest.features.model_copy(update={"count": n_features})}),
        whole.shards,
    )
    learner = new_learner(block, tried)
    warm = min(WARM_ROWS, len(labels) // 2)
    learner.learn_rows(indptr[: warm + 1], indices[: indptr[warm]], counts[: indptr[warm]], labels[:warm])
    done, started = warm, time.thread_time()
    while done < len(labels) and time.thread_time() - started < TRIAL_SECONDS:
        stop = min(done + WARM_ROWS, len(labels))
        first, last = indptr[done], indptr[stop]
        learner.learn_rows(indptr[done : stop + 1] - first, indices[first:last], counts[first:last], labels[done:stop])
        done = stop
    return (time.thread_time() - started) / max(done - warm, 1)


def _rows(store: Store) -> RowBatch:
    """Some documents; classes mixed, as in a stream."""
    parts, rows = [], 0
    for shard in range(store.n_shards):
        parts.append(store.read(shard))
        rows += len(parts[-1].labels)
        if rows >= TRIAL_ROWS:
            break
    sizes = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(sizes)])
    indices, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "counts"))
    found = [part.labels for part in parts]
    labels = np.concatenate([own.indicator(len(store.classes)) for own in found] if store.is_multilabel else found)
    order = np.random.default_rng(0).permutation(rows)[:TRIAL_ROWS]
    chosen = np.concatenate([np.arange(indptr[row], indptr[row + 1]) for row in order])
    indptr = np.concatenate([[0], np.cumsum(sizes[order])])
    return RowBatch(indptr, indices[chosen], counts[chosen], labels[order])


def _spread(seconds: Sequence[float], tasks: int) -> float:
    """The makespan of these jobs on so many tasks, longest first."""
    ends = [0.0] * tasks
    for job in sorted(seconds, reverse=True):
        heapq.heappushpop(ends, ends[0] + job)
    return max(ends)
