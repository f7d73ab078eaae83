"""The full-gradient pass on Dask: a map over leaves and a tree sum, with the bits of `passes.LocalPasses`.

A task processes an aligned run of leaves: it opens the worker's corpus, reads the weights from a file, writes a file of
slopes per leaf and returns its sums, which stay in the worker for the next task of the tree. The root writes the total.
Only paths go through the scheduler. Tasks are pure functions of their arguments and commit files atomically, so any of
them may run twice or on another worker; a pass whose total exists is not repeated.

Columns are split into groups if the sums of all columns do not fit in a worker: memory is bounded by features × columns
of a group, whatever the size of the corpus.
"""

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future

from sparseoco import __version__
from sparseoco.core.errors import InputError, StorageError
from sparseoco.execution.clusters import placements, worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.passes import (
    Floats,
    Partial,
    PassRequest,
    PassResult,
    Shape,
    Source,
    Span,
    WithIntercept,
    leaf_bounds,
    leaf_conjugates,
    leaf_squares,
    leaf_totals,
    leaf_weights,
    tree_sum,
)
from sparseoco.storage.checkpoints import DAMAGE, read_checkpoint, read_header, write_array, write_checkpoint
from sparseoco.storage.commit import as_local_file, digest_value, make_folder, remove_file, remove_folder
from sparseoco.storage.errors import storage_error
from sparseoco.storage.locations import Location, location
from sparseoco.store.shards import Store
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.store.worker import worker_corpus
from sparseoco.training.class_weights import ClassWeighted

TASKS_PER_SLOT = 2  # more than one, to balance the load
MEMORY_SHARE = 0.5  # of a task's memory; the rest is for rows, the interpreter and the page cache
WAITING = 5  # sums waiting in a worker per thread, and the weights

NEWTON_NONZEROS = 1 << 24
"""Up to this size the rows fit in any worker, both by rows and by columns, and the optimum is found by Newton steps in
one task, with a tenth of the passes. It depends on the data only, so that bits do not depend on the cluster."""


class PassFiles(NamedTuple):
    """Files of one pass over columns first..last.

    weights  npy (features, columns)
    total    npz loss_sum, exact_sum (columns,), gradient (features, columns)
    slopes   npy (rows of the leaf, columns), one per leaf
    """

    first: int
    last: int
    weights: Location
    total: Location
    slopes: tuple[Location, ...]

    def remove(self) -> None:
        """Delete them."""
        for path in (self.weights, self.total, *self.slopes):
            remove_file(path)


class ClusterPasses:
    """Passes over a span of a store, run by the workers of a client.

    Parameters
    ----------
    client : distributed.Client
    store : Store
    work : Location
        Folder for files, accessible to the workers and used by one run at a time. `drop` deletes the files of a pass,
        `clear` the folder.
    span : Span, optional
        All rows by default.
    weighting : Weighting, optional
        How counts are weighted; not at all by default.
    class_weights : sequence of float, optional
        By class, factors of the sample weights of its rows.
    intercept : bool
        Whether rows have the intercept as their last feature.

    Raises
    ------
    SparseocoError
        A pass cannot be run (`StorageError`: a corrupt shard, a full disk).
    InputError
        The sums of one column do not fit in a worker.
    """

    def __init__(
        self,
        client: Client,
        store: Store,
        work: Location,
        span: Span | None = None,
        weighting: Weighting = COUNTS,
        class_weights: tuple[float, ...] | None = None,
        intercept: bool = False,
    ) -> None:
        self.client, self.store, self.work = client, store, work.resolve()
        self._source = RowsSource(str(store.folder.resolve()), weighting, class_weights, intercept)
        shape = Shape(store.n_rows, store.n_features, store.manifest.nonzeros)
        self.shape = shape.with_intercept() if intercept else shape
        self.span = (span or Span()).within(store.n_rows)
        self.bounds = leaf_bounds(self.span, self.shape)
        self._pool = TaskPool(client, "A pass failed")
        make_folder(self.work)

    def totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """See `passes.Passes.totals`; `slopes` are the `PassFiles` of each group of columns."""
        groups = self.run(weights, request)
        parts = [_read_partial(files.total) for files in groups]
        return PassResult(
            np.concatenate([part.loss_sum for part in parts]),
            np.concatenate([part.exact_sum for part in parts]),
            parts[0].gradient if len(parts) == 1 else np.hstack([part.gradient for part in parts]),
            tuple(groups),
        )

    def run(self, weights: Floats, request: PassRequest) -> list[PassFiles]:
        """One pass at `weights` (features, columns); returns its files per group of columns."""
        width = self._group_width()
        columns = weights.shape[1]
        return [
            self._run_group(weights[:, first : first + width], request.columns(first, first + width), first)
            for first in range(0, columns, width)
        ]

    def slopes(self, result: PassResult) -> Floats:
        """See `passes.Passes.slopes`."""
        return np.hstack(
            [
                np.concatenate([read_rows(path, files.last - files.first) for path in files.slopes])
                for files in result.slopes
            ]
        )

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `passes.Passes.conjugates`; tasks over files of slopes, which read rows only for their weights."""
        out = []
        for files in result.slopes:
            scales = scale[files.first : files.last]
            tasks = [
                (self._source, self.span, self.bounds[first:last], request.loss, list(map(str, own)), scales)
                for first, last in self._task_bounds(1)
                for own in [files.slopes[first:last]]
            ]
            parts = self._pool.map(_conjugates, tasks)
            leaves = [sums for part in parts for sums in part]
            out.append(np.asarray(tree_sum(leaves.__getitem__, 0, len(leaves))))
        return np.concatenate(out)

    def squares(self) -> Floats:
        """See `passes.Passes.squares`."""
        path = self.work / f"squares-{self._digest('squares')}.npy"
        if not path.exists():
            self._sum(path, _squares, self._source, self.span, self.bounds, self.shape.n_features)
        return np.array(read_rows(path, 1)[:, 0])  # the caller may write to it

    def drop(self, result: PassResult) -> None:
        """Delete the files of a pass."""
        for files in result.slopes:
            files.remove()

    def columns(self) -> None:
        """See `passes.Passes.columns`: rows are on the workers."""

    def sample_weights(self) -> None:
        """See `passes.Passes.sample_weights`."""

    def clear(self) -> None:
        """Delete the folder of files."""
        remove_folder(self.work)

    def _run_group(self, weights: Floats, request: PassRequest, first: int) -> PassFiles:
        weights = np.ascontiguousarray(weights, np.float64)
        content = hashlib.sha256(weights.data).hexdigest()
        digest = self._digest([list(request), content])
        files = PassFiles(
            first,
            first + weights.shape[1],
            self.work / f"weights-{digest}.npy",
            self.work / f"total-{digest}.npz",
            tuple(self.work / f"slopes-{digest}-{i}.npy" for i in range(len(self.bounds))),
        )
        write_array(files.weights, weights)
        if not _complete(files):
            slopes = [str(path) for path in files.slopes]
            self._sum(files.total, _totals, self._source, self.span, self.bounds, str(files.weights), request, slopes)
        return files

    def _digest(self, value: Any) -> str:
        """A digest that identifies a pass: equal requests for equal data have equal digests."""
        rows = [self._source.weighting.model_dump(mode="json"), *self._source[2:], list(self.span)]
        return digest_value([self.store.manifest.digest, *rows, value, __version__])[:32]

    def _task_bounds(self, tasks_per_slot: int | None = None) -> list[tuple[int, int]]:
        """(first, last) leaves of each task: aligned runs, at least `tasks_per_slot` per thread if possible."""
        slots, _ = worker_shape(self.client)
        leaves = len(self.bounds)
        count = min(leaves, 1 << ((tasks_per_slot or TASKS_PER_SLOT) * slots - 1).bit_length())
        size = leaves // count
        return [(first, first + size) for first in range(0, leaves, size)]

    def _group_width(self) -> int:
        """Number of columns whose sums fit in a worker."""
        _, memory = worker_shape(self.client)
        first, last = self._task_bounds()[0]
        sums = (last - first).bit_length() + WAITING  # of a task's part of the tree, and waiting ones
        column = 8 * self.shape.n_features * sums
        if column > memory * MEMORY_SHARE:
            raise InputError(
                f"A pass needs {column / MEMORY_SHARE / 1e9:.1f} GB per column ({self.shape.n_features:,} features); "
                f"a task has {memory / 1e9:.1f} GB: keep fewer features at ingest (--min-df, --max-features, "
                "--hash-bits) or give workers more memory.",
                code="out-of-memory",
            )
        return int(memory * MEMORY_SHARE // column)

    def _sum(self, path: Location, function: Callable[..., Any], *arguments: Any) -> None:
        """Sum `function` over all runs of leaves as a tree and write the total to `path`."""

        def start(path: Location) -> Future:
            tasks = self._task_bounds()
            # Workers get the same part in every pass, so that each lays out only its own shards.
            leaves = [
                self._pool.submit(function, *arguments, first, last, **placement)
                for placement, (first, last) in zip(placements(self.client, len(tasks)), tasks, strict=True)
            ]
            return self._pool.submit(_write, self._pool.tree(leaves), str(path))

        for outcome in self._pool.run([path], start):
            self._pool.check(outcome)


class RowsSource(NamedTuple):
    """The rows that a task reads: the path of a store, the weighting of its counts, the weights of its classes, and
    whether the intercept is the last feature."""

    store: str
    weighting: Weighting
    class_weights: tuple[float, ...] | None = None
    intercept: bool = False


def open_rows(source: RowsSource) -> Source:
    """The weighted rows of a store on this worker."""
    store = Store.open(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: Source = corpus if own is None else ClassWeighted(corpus, own)
    return WithIntercept(rows, store.n_features) if source.intercept else rows


def read_rows(path: Location, columns: int) -> Floats:
    """An npy file (rows, columns) of float64 of a pass, mapped. Raises `StorageError` if it cannot be read."""
    try:
        with as_local_file(path) as local:  # a copy stays mapped after it is unlinked
            with local.open("rb") as file:
                dtype, shape = read_header(file, path.name)
                start = file.tell()
            size = math.prod(shape)
            if dtype != np.float64 or size % columns or local.stat().st_size != start + 8 * size:
                raise ValueError("it is not a complete file of a pass")
            # An empty file cannot be mapped.
            return (
                np.asarray(np.memmap(local, dtype, "r", start, (size // columns, columns)))
                if size
                else np.empty((0, columns))
            )
    except FileNotFoundError as error:
        raise storage_error(error, path) from error
    except DAMAGE as error:
        raise StorageError(f"{path} is corrupt: {error}.", code="corrupt-file") from error


def _totals(
    source: RowsSource,
    span: Span,
    bounds: list[tuple[int, int]],
    weights: str,
    request: PassRequest,
    slopes: list[str],
    first: int,
    last: int,
) -> Partial:
    rows = open_rows(source)
    values = read_rows(location(weights), len(request.positive))

    def leaf(i: int) -> Partial:
        total, s = leaf_totals(rows, span, bounds[i], values, request)
        write_array(location(slopes[i]), s)
        return total

    total: Partial = tree_sum(leaf, first, last)
    return total


def _squares(
    source: RowsSource, span: Span, bounds: list[tuple[int, int]], n_features: int, first: int, last: int
) -> Floats:
    rows = open_rows(source)
    return np.asarray(tree_sum(lambda i: leaf_squares(rows, span, bounds[i], n_features), first, last))


def _conjugates(
    source: RowsSource, span: Span, bounds: list[tuple[int, int]], loss: str, slopes: list[str], scale: Floats
) -> list[Floats]:
    rows = open_rows(source)
    return [
        leaf_conjugates(loss, read_rows(location(path), scale.size), leaf_weights(rows, span, own), scale)
        for path, own in zip(slopes, bounds, strict=True)
    ]


def _write(total: Partial | Floats, path: str) -> None:
    if isinstance(total, Partial):
        write_checkpoint(location(path), {}, total._asdict().items())
    else:
        write_array(location(path), total)


def _read_partial(path: Location) -> Partial:
    with read_checkpoint(path) as (_, read):
        return Partial(*(read(name) for name in Partial._fields))


def _complete(files: PassFiles) -> bool:
    """Whether all files of a pass exist and its total is intact."""
    with suppress(StorageError):
        _read_partial(files.total)
        return all(path.exists() for path in files.slopes)
    return False
