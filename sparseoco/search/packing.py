"""How configurations are packed into blocks: as wide as share cache lines and fit in memory, and the same work for all.

Packing decides how fast a search is and nothing else: any grouping gives the same results.
"""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.utils import format_bytes
from distributed import Client

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import worker_shape, workers_of
from sparseoco.learners import find_algorithm
from sparseoco.offline.coordinates import bytes_needed
from sparseoco.store.corpus import MAPPED_BYTES
from sparseoco.store.shards import Store
from sparseoco.training.block import Block, Setting, StreamPosition
from sparseoco.training.columns import padded
from sparseoco.training.options import Configuration, SearchOptions
from sparseoco.training.sizes import bytes_per_column

BLOCK_COLUMNS = 64  # wider blocks share no more of a feature's cache lines
STREAM_COLUMNS = 44  # what the stream itself costs a block, in columns: its time at 16 and at 64 columns, extrapolated
MEMORY_SHARE = 0.7  # of what a task may use, where nobody has set a limit; the rest is for all that is not columns
PROCESS_BYTES = 400 << 20  # an interpreter with its libraries and what it has compiled
CHUNK_BYTES = 64 << 20  # rows gathered, pieces of a sweep, of a state that is written
EPOCH_NUMBERS = 6  # float64 a feature and column that an epoch method and its passes hold at once
FEATURE_BYTES = 40  # frequencies, their bins and what it takes to make them


class Job(NamedTuple):
    """A block to run to the last of `milestones`; `resumable` says that it, or a part of it, will be asked for from
    there."""

    block: Block
    milestones: tuple[StreamPosition, ...]
    resumable: bool


class Pack(NamedTuple):
    """What configurations have in common that can be run together.

    Setting, legs to run, the block whose state holds them, and all that is compiled in: algorithm and parameters.
    """

    setting: Setting
    milestones: tuple[StreamPosition, ...]
    held: str | None
    compiled: tuple[Any, ...]

    @classmethod
    def of(
        cls, setting: Setting, milestones: tuple[StreamPosition, ...], held: str | None, configuration: Configuration
    ) -> "Pack":
        """The pack of a configuration."""
        static = find_algorithm(configuration.algorithm).static_values(configuration.parameters)
        return cls(setting, milestones, held, (configuration.algorithm, *static))


class Capacity(NamedTuple):
    """Tasks that run at once on the whole cluster, and the bytes of columns each may hold."""

    tasks: int
    column_bytes: float


def corpus_bytes(store: Store) -> int:
    """Bytes of a store's rows as they are laid out."""
    entry = store.indices_dtype.itemsize + store.counts_dtype.itemsize
    return store.n_rows * (8 + store.labels_dtype.itemsize) + store.manifest.nonzeros * entry


def pack(
    packs: Mapping[Pack, Sequence[Configuration]],
    options: SearchOptions,
    store: Store,
    room: Capacity,
    *,
    resumable: bool,
) -> list[Job]:
    """Jobs in the order to send them, longest first, some of them cut in two so that no task ends long before others.

    A narrower block pays for the stream again, so one is cut only where the last task ends sooner by it. Raises
    `InputError`, with the figure, if not even one configuration fits in memory.
    """
    best = []
    for (setting, milestones, _, _), chosen in packs.items():
        width = configurations_at_once(chosen[0], options, store, room)
        for first in range(0, len(chosen), width):
            parameters = tuple(configuration.parameters for configuration in chosen[first : first + width])
            block = Block(setting=setting, algorithm=chosen[0].algorithm, configurations=parameters)
            best.append(Job(block, milestones, resumable))
    best.sort(key=lambda job: -_cost(job, store))
    end, last = _schedule(best, room.tasks, store)
    while True:
        halves = [job._replace(block=half) for i in last for job in [best[i]] for half in halved(job.block, store)]
        tried = [job for i, job in enumerate(best) if i not in last] + halves
        tried.sort(key=lambda job: -_cost(job, store))
        sooner, next_last = _schedule(tried, room.tasks, store)
        if sooner >= 0.99 * end:
            return best
        best, end, last = tried, sooner, next_last


def cluster_capacity(client: Client, options: SearchOptions, store: Store) -> Capacity:
    """What the cluster has room for: a share of each worker's limit, or all that `max_memory` leaves for columns."""
    tasks, memory = worker_shape(client)
    threads = max((worker["nthreads"] for worker in workers_of(client).values()), default=1)
    return capacity_per_task(tasks, memory, threads, options, store)


def capacity_per_task(tasks: int, memory: int, threads: int, options: SearchOptions, store: Store) -> Capacity:
    """The room of a cluster of so many tasks at once, `threads` of them a process, with `memory` bytes for each."""
    column_bytes = memory * MEMORY_SHARE
    if options.max_memory is not None:
        corpus = corpus_bytes(store)
        corpus = corpus if corpus <= MAPPED_BYTES else 0  # rows of a larger one are read when wanted
        task = (options.max_memory - PROCESS_BYTES - corpus) / threads
        column_bytes = min(column_bytes, task - CHUNK_BYTES - FEATURE_BYTES * store.n_features)
    if options.halving is not None or options.patience is not None:
        column_bytes /= 2  # what is left of a block is taken up beside the whole
    return Capacity(tasks, column_bytes)


def configurations_at_once(configuration: Configuration, options: SearchOptions, store: Store, room: Capacity) -> int:
    """How many configurations compiled as this one share a block: as share cache lines and fit in memory.

    Raises `InputError`, with the figure, if not even one fits.
    """
    outputs = _outputs(store)
    widths = range(max(1, BLOCK_COLUMNS // outputs), 0, -1)
    needed = 0
    for width in widths:
        needed = _bytes(configuration.algorithm, configuration.parameters, width, options, store)
        if needed <= room.column_bytes:
            return width
    given = "set a larger --max-memory" if options.max_memory is not None else "give workers more memory"
    raise InputError(
        f"One configuration of {configuration.algorithm} needs {format_bytes(needed)} ({store.n_features:,} features "
        f"× {outputs} columns) and a task has {format_bytes(max(room.column_bytes, 0))} for it: keep fewer features at "
        f"ingest (--min-df, --max-features, --hash-bits), take those that a model kept (--features-from) or {given}."
    )


def state_bytes(block: Block, store: Store) -> int:
    """Bytes of a block's state."""
    return _bytes(block.algorithm, block.configurations[0], len(block.configurations), block.setting, store)


def halved(block: Block, store: Store) -> list[Block]:
    """A block in two, the first of them of whole cache lines where it can be; itself where it is one configuration."""
    size = len(block.configurations)
    if size == 1:
        return [block]
    lanes = max(1, padded(2, np.dtype(block.setting.dtype)) // _outputs(store))
    half = -(-size // (2 * lanes)) * lanes
    if half >= size:
        half = size // 2
    return [block.of(block.configurations[:half]), block.of(block.configurations[half:])]


def _schedule(jobs: Sequence[Job], tasks: int, store: Store) -> tuple[float, list[int]]:
    """When the last task ends that takes jobs in this order, and the longest job of each task that ends then."""
    ends = [(0.0, task) for task in range(tasks)]
    longest: dict[int, int] = {}
    for i, job in enumerate(jobs):
        end, task = heapq.heappop(ends)
        longest.setdefault(task, i)
        heapq.heappush(ends, (end + _cost(job, store), task))
    last = max(ends)[0]
    return last, sorted({longest[task] for end, task in ends if task in longest and end > 0.99 * last})


def _cost(job: Job, store: Store) -> float:
    """In columns of a sparse learner; one of a dense learner goes through all its numbers in every round."""
    block = job.block
    columns = len(block.configurations) * _outputs(store)
    if find_algorithm(block.algorithm).driver == "dense":
        numbers = _column_bytes(block.algorithm, block.configurations[0], block.setting, store) / 8
        return len(job.milestones) * columns * numbers * store.n_rows / max(store.manifest.nonzeros, 1)
    return float(len(job.milestones) * (STREAM_COLUMNS + padded(columns, np.dtype(block.setting.dtype))))


def _outputs(store: Store) -> int:
    return len(store.classes) if len(store.classes) > 2 else 1


def _bytes(algorithm: str, parameters: dict[str, Any], configurations: int, options: Any, store: Store) -> int:
    """State of a block, padding and stamps included; `options` say loss, penalty and dtype."""
    columns = configurations * _outputs(store)
    driver = find_algorithm(algorithm).driver
    if driver == "coordinate":
        return bytes_needed(store.n_rows, store.n_features, columns, parameters["rounds"])
    if driver == "epoch":
        return EPOCH_NUMBERS * 8 * store.n_features * columns
    column = _column_bytes(algorithm, parameters, options, store)
    if driver == "dense":
        return columns * column
    return padded(columns, np.dtype(options.dtype)) * column + 8 * store.n_features


def _column_bytes(algorithm: str, parameters: dict[str, Any], options: Any, store: Store) -> int:
    return bytes_per_column(
        algorithm,
        store.n_features,
        np.dtype(options.dtype),
        loss=options.loss,
        penalty=options.penalty,
        parameters=parameters,
    )
