"""The memory of a run, by the formula that sizes blocks, and its time, by short trials of its kernels.

    memory of a process = 400 MB + 128 MB for other steps
                          + the corpus, if it is small enough to be memory-mapped
                          + tasks × (the largest block + 64 MB + 48 bytes per feature)
    time of the search  = Σ over blocks of epochs × (time an epoch of such a block), spread over the tasks

The time is processor time: of an online method, of the first rows of a block as wide as the search's, per nonzero; of
an epoch method, of epochs over a few rows (`doctor.epochs`).
"""

import heapq
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sparseoco.kernels.structs import RowBatch
from sparseoco.learners import find_algorithm
from sparseoco.ops.doctor.cluster import Shape
from sparseoco.ops.doctor.epochs import TRIAL_BYTES, epoch_seconds, transpose_seconds
from sparseoco.search.block_run import new_learner
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
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, search_setting
from sparseoco.training.options.configuration import Configuration
from sparseoco.training.options.search import SearchOptions
from sparseoco.training.stream import NO_FOLD, StreamPosition

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
