"""Configurations in blocks of columns, and relative penalties."""

import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.utils import format_bytes

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import worker_shape
from sparseoco.learners import find_algorithm, takes_intercept
from sparseoco.learners.losses import find_loss
from sparseoco.learners.penalties import find_penalty
from sparseoco.offline.cluster.passes import RowsSource, lambda_max
from sparseoco.offline.epochs import bytes_needed, shared_values
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.shards import Session, Store, store_reference
from sparseoco.training.block import Block, FeatureGroups, Setting, resolve_class_weights
from sparseoco.training.learner import padded
from sparseoco.training.metrics import score_bytes
from sparseoco.training.options import Configuration, SearchOptions, learner_parameters
from sparseoco.training.stream import StreamPosition, order_name
from sparseoco.training.validation import bytes_per_column

# ----------------------------------------------------------------------------------------------------------------------
# Packing configurations into blocks so that the last task ends as early as possible, within memory.
#
# A wide block reads the stream once for many configurations; narrow blocks keep more tasks busy. Packing only affects
# speed: any grouping gives the same results.


BLOCK_COLUMNS = 64  # wider blocks share no more cache lines of a feature
STREAM_COSTS = {
    ("none", True): 2.5,
    ("none", False): 1.0,
    ("rows", True): 3.5,
    ("rows", False): 6.0,
    ("blocks", True): 3.5,
    ("blocks", False): 5.0,
}
"""Processor seconds per 10⁹ nonzeros to read a stream, by its order and whether the corpus is mapped."""
COLUMN_COSTS = {1: 14.0, 4: 18.0, 8: 23.0, 16: 33.0, 64: 80.0}
"""Processor seconds per 10⁹ nonzeros to learn them with so many columns, padding included.

Means of adagrad, cl-fobos, fobos and rda, measured, like those of the stream, by `tests/benchmarks/test_learners.py`.
"""
MEMORY_SHARE = 0.7  # of a task's memory for columns, if no limit is set
PROCESS_BYTES = 400 << 20  # an interpreter with its libraries and compiled code
CHUNK_BYTES = 64 << 20  # gathered rows, pieces of materialised weights and of checkpoints
EPOCH_NUMBERS = 24  # float64 per feature and column in an epoch method and its passes (`ClusterPasses`)
AVERAGE_BYTES = 24  # per feature and column where parts are averaged: their sum, weights before and after
END_SHARE = 0.99  # of the time of the last task: an end that is less sooner is not worth more processor time
FEATURE_BYTES = 48  # per feature: frequencies, their bins, idf, and temporary arrays


class Job(NamedTuple):
    """A block to run to the last of `milestones`; `resumable` if a later job continues it, or part of it."""

    block: Block
    milestones: tuple[StreamPosition, ...]
    resumable: bool


Work = tuple[Configuration, Setting, tuple[StreamPosition, ...], str | None]
"""A configuration under a setting, the milestones to run it to, and the digest of the block whose checkpoint it starts
from."""


class Capacity(NamedTuple):
    """How many tasks the cluster runs at once, and the bytes of columns that each may hold."""

    tasks: int
    column_bytes: float


def corpus_bytes(store: Store) -> int:
    """Bytes of a store's rows in the memory-mapped layout."""
    entry = store.indices_dtype.itemsize + store.counts_dtype.itemsize
    return store.n_rows * (8 + store.labels_dtype.itemsize) + store.manifest.nonzeros * entry


def pack(work: list[Work], options: SearchOptions, store: Store, capacity: Capacity, *, resumable: bool) -> list[Job]:
    """Jobs in the order to submit them, longest first.

    The configurations of a block have in common what is compiled into the kernel, the start and the milestones. Blocks
    are as wide as cache lines and memory allow, then halved while that is predicted to end the last task sooner. Raises
    `InputError` if not even one configuration fits in memory.
    """
    groups: dict[tuple[Any, ...], list[Configuration]] = {}
    for configuration, setting, *rest in work:
        algorithm, loss = find_algorithm(configuration.algorithm), find_loss(setting.loss)
        static = shared_values(algorithm, loss, configuration.parameters)
        key = setting, *rest, configuration.weighting, configuration.algorithm, configuration.parts, *static
        groups.setdefault(key, []).append(configuration)
    jobs = []
    for (setting, milestones, *_), chosen in groups.items():
        width = configurations_at_once(Block.of(setting, chosen), options, store, capacity)
        parts = [chosen[first : first + width] for first in range(0, len(chosen), width)]
        jobs += [Job(Block.of(setting, part), milestones, resumable) for part in parts]
    return _balanced(jobs, capacity.tasks, store)


def _balanced(jobs: Sequence[Job], tasks: int, store: Store) -> list[Job]:
    """These jobs, longest first, those that end last halved as long as the last task then ends sooner."""

    def longest_first(known: list[tuple[float, Job]], jobs: Sequence[Job]) -> list[tuple[float, Job]]:
        return sorted([*known, *((job_cost(job, store), job) for job in jobs)], key=lambda entry: -entry[0])

    best, end, halved_last = longest_first([], jobs), math.inf, longest_first([], jobs)
    while True:
        sooner, last = schedule([(cost, job.block.parts) for cost, job in halved_last], tasks)
        if sooner >= END_SHARE * end:
            return [job for _, job in best]
        best, end = halved_last, sooner
        halves = [best[i][1]._replace(block=half) for i in last for half in halved(best[i][1].block, store)]
        halved_last = longest_first([entry for i, entry in enumerate(best) if i not in last], halves)


def cluster_capacity(session: Session, options: SearchOptions) -> Capacity:
    """The capacity of the cluster: a share of each worker's memory limit, or what `max_memory` leaves for columns."""
    return capacity_per_task(*worker_shape(session.client), options, session.store)


def capacity_per_task(tasks: int, memory: int, threads: int, options: SearchOptions, store: Store) -> Capacity:
    """The capacity of a cluster that runs `tasks` at once, `threads` in a process, with `memory` bytes for each."""
    column_bytes = memory * MEMORY_SHARE
    if options.max_memory is not None:
        corpus = corpus_bytes(store)
        corpus = corpus if corpus <= MAPPED_BYTES else 0  # a larger corpus is read in parts
        task = (options.max_memory - PROCESS_BYTES - corpus) / threads
        column_bytes = min(column_bytes, task - CHUNK_BYTES - FEATURE_BYTES * store.n_features)
    if options.halving is not None:
        column_bytes /= 2  # a selection is a copy, made while the whole block is in memory
    return Capacity(tasks, column_bytes)


def configurations_at_once(block: Block, options: SearchOptions, store: Store, capacity: Capacity) -> int:
    """How many configurations to put in a block like this: as many as cache lines and memory allow.

    Raises `InputError`, with the memory needed, if not even one fits.
    """
    outputs = store.n_outputs
    needed = 0
    for width in range(max(1, BLOCK_COLUMNS // outputs), 0, -1):
        needed = state_bytes(block, store, width) + evaluation_bytes(block, options.folds, store, width)
        if needed <= capacity.column_bytes:
            return width
    given = "set a larger --max-memory" if options.max_memory is not None else "give workers more memory"
    raise InputError(
        f"One configuration of {block.algorithm} needs {format_bytes(needed)} ({store.n_features:,} features "
        f"× {outputs} columns) and a task has {format_bytes(max(capacity.column_bytes, 0))} for it: keep fewer "
        f"features at ingest (--min-df, --max-features, --hash-bits), select those of a model (--features-from) or "
        f"{given}.",
        code="out-of-memory",
    )


def halved(block: Block, store: Store) -> list[Block]:
    """Two halves of a block, the first of whole cache lines if possible; a single configuration is not split."""
    size = len(block.configurations)
    if size == 1:
        return [block]
    lanes = max(1, padded(2, np.dtype(block.setting.dtype)) // store.n_outputs)
    half = -(-size // (2 * lanes)) * lanes
    if half >= size:
        half = size // 2
    return [block.select(block.configurations[:half]), block.select(block.configurations[half:])]


def schedule(jobs: Sequence[tuple[float, int]], tasks: int) -> tuple[float, list[int]]:
    """When the last task ends if jobs run in this order, and the longest job of each task that ends then.

    A job has a cost and a number of parts, tasks of equal cost.
    """
    ends = [(0.0, task) for task in range(tasks)]
    longest: dict[int, int] = {}
    for i, (cost, parts) in enumerate(jobs):
        for _ in range(parts):
            end, task = heapq.heappop(ends)
            longest.setdefault(task, i)
            heapq.heappush(ends, (end + cost / parts, task))
    last = max(ends)[0]
    return last, sorted({longest[task] for end, task in ends if task in longest and end > END_SHARE * last})


def job_cost(job: Job, store: Store) -> float:
    """Predicted processor seconds per 10⁹ nonzeros of the store.

    A dense learner updates its whole state in every round, each number at the cost of a column of a wide block.
    """
    block = job.block
    columns = len(block.configurations) * store.n_outputs
    if find_algorithm(block.algorithm).touches_all_features:
        numbers = _column_bytes(block, store) / 8
        return len(job.milestones) * columns * numbers * store.n_rows / max(store.manifest.nonzeros, 1)
    stream = STREAM_COSTS[order_name(block.setting.range_rows), corpus_bytes(store) <= MAPPED_BYTES]
    width = padded(columns, np.dtype(block.setting.dtype))
    learning = np.interp(width, list(COLUMN_COSTS), list(COLUMN_COSTS.values())) * max(1.0, width / BLOCK_COLUMNS)
    return len(job.milestones) * (stream + float(learning))


def state_bytes(block: Block, store: Store, configurations: int | None = None) -> int:
    """Bytes of a block's state, padding and time stamps included, or of one with so many configurations."""
    setting, columns = block.setting, (configurations or len(block.configurations)) * store.n_outputs
    definition = find_algorithm(block.algorithm)
    if definition.samples_features:
        rounds = block.configurations[0]["rounds"]
        return bytes_needed(store.n_rows, store.n_features, columns, rounds, setting.penalty)
    if not definition.online:
        return EPOCH_NUMBERS * 8 * store.n_features * columns
    column = _column_bytes(block, store)
    if definition.touches_all_features:
        return columns * column
    averaged = AVERAGE_BYTES * columns * store.n_features if block.parts > 1 else 0
    return padded(columns, np.dtype(setting.dtype)) * column + 8 * store.n_features + averaged


def evaluation_bytes(block: Block, folds: int, store: Store, configurations: int | None = None) -> int:
    """Bytes of a block's held-out scores, and of the weights that margins are computed with, as `state_bytes`."""
    if folds == 1:
        return 0
    dtype, definition = np.dtype(block.setting.dtype), find_algorithm(block.algorithm)
    size = configurations or len(block.configurations)
    scores = size * score_bytes(store.n_outputs, store.n_rows // folds, dtype.itemsize)
    if definition.touches_all_features or not definition.online:  # its state is the weights
        return scores
    return scores + padded(size * store.n_outputs, dtype) * dtype.itemsize * store.n_features


def _column_bytes(block: Block, store: Store) -> int:
    setting, parameters = block.setting, learner_parameters(block.configurations[0])
    options: dict[str, Any] = {"loss": setting.loss, "penalty": setting.penalty, "parameters": parameters}
    options["feature_groups"] = setting.feature_groups is not None
    return bytes_per_column(block.algorithm, store.n_features, np.dtype(setting.dtype), **options)


# ----------------------------------------------------------------------------------------------------------------------
# Grids relative to λ_max: the numbers by which they are multiplied, for each weighting and algorithm.


def resolve_relative(session: Session, options: SearchOptions) -> SearchOptions:
    """The options with λ_max of a store for each of their weightings, with an intercept where the learner has one.

    α, which weights the penalty of the sum of all losses, is relative to n·λ_max for n rows. Raises `SparseocoError` if
    a task fails.
    """
    store, grouped = session.store, find_penalty(options.penalty).grouped
    weights, groups = resolve_class_weights(options.class_weight, store), FeatureGroups.of(options.feature_groups)
    found: dict[str, dict[str, float]] = {}
    for weighting in options.features.weightings:
        source, by_intercept = RowsSource(store_reference(store), weighting, weights), dict[bool, float]()
        own = found[weighting.label] = {}
        for name, parameter in options.relative_parameters.items():
            intercept = takes_intercept(name, options.penalty) if options.intercept is None else options.intercept
            if intercept not in by_intercept:
                flags = {"grouped": grouped, "intercept": intercept}
                by_intercept[intercept] = lambda_max(session.client, source, options.loss, groups=groups, **flags)
            own[name] = by_intercept[intercept] * (store.n_rows if parameter == "alpha" else 1)
    return options.model_copy(update={"lambda_max": found})
