"""Full passes over a store on a cluster."""

import uuid
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import placements, worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.passes import (
    Floats,
    Leaves,
    Partial,
    Passes,
    PassRequest,
    PassResult,
    RowSource,
    Shape,
    Span,
    WithIntercept,
    leaf_conjugates,
    leaf_weights,
    sum_leaves,
    tree_sum,
)
from sparseoco.storage.checkpoints import map_array, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import make_folder, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import worker_corpus
from sparseoco.store.shards import StoreReference, open_store
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.stream import ClassWeighted

# ----------------------------------------------------------------------------------------------------------------------
# The tasks of a full-gradient pass.
#
# A *run* is an aligned range of leaves, whose slopes are files in the shared folder and whose sums are the result of a
# task. Dask adds the sums of runs in a balanced tree, the upper part of the fixed tree of the leaves, and computes them
# again if the worker that had them is gone.


class RowsSource(NamedTuple):
    """The rows that a task reads: the path of a store, the weighting of its counts, the weights of its classes, and
    whether the intercept is the last feature."""

    store: StoreReference
    weighting: Weighting = COUNTS
    class_weights: tuple[float, ...] | None = None
    intercept: bool = False


class Pass(NamedTuple):
    """The description of a pass for its tasks, and its files, with the prefix `files` in the shared folder.

    `request` is None for the sums of squares of the features.
    """

    source: RowsSource
    leaves: Leaves
    files: str
    request: PassRequest | None

    def slopes_of(self, leaf: int) -> Location:
        """npy (rows of the leaf, columns)."""
        return location(f"{self.files}-slopes-{leaf}.npy")

    @property
    def slopes(self) -> list[Location]:
        """The files of all leaves; none for squares."""
        return [] if self.request is None else [self.slopes_of(i) for i in range(len(self.leaves.bounds()))]

    @property
    def total(self) -> Location:
        """npz `loss_sum` and `exact_sum` (columns,), `gradient` (features, columns)."""
        return location(f"{self.files}-total.npz")

    def sums(self) -> Partial:
        """Read the total. Raises `StorageError` if its file is missing or corrupt."""
        with read_checkpoint(self.total) as (_, read):
            return Partial(*(read(name) for name in Partial._fields))

    def remove(self) -> None:
        """Delete its files."""
        for path in (self.total, *self.slopes):
            remove_file(path)


def open_rows(source: RowsSource) -> RowSource:
    """The weighted rows of a store on this worker."""
    store = open_store(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: RowSource = corpus if own is None else ClassWeighted(corpus, own)
    return WithIntercept(rows, store.n_features) if source.intercept else rows


def read_weights(path: Location) -> Floats:
    """(features, columns): the weights of a pass, which Dask sends to the workers that sum it."""
    return np.array(read_rows(path))


def run_sums(task: Pass, first: int, last: int, weights: Floats | None) -> Partial:
    """The sums of leaves first..last, whose slopes are written, at these weights, 0 if None."""
    if weights is None:
        weights = np.zeros((task.leaves.shape.n_features, 1 if task.request is None else len(task.request.positive)))
    run = open_rows(task.source), task.leaves, (first, last), weights, task.request
    return sum_leaves(*run, lambda leaf, slopes: write_array(task.slopes_of(leaf), slopes))


def write_total(task: Pass, total: Partial) -> None:
    """Write the sum of all runs."""
    write_checkpoint(task.total, {}, total._asdict().items())


def conjugate_sums(task: Pass, first: int, last: int, scale: Floats) -> list[Floats]:
    """Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) of leaves first..last of a pass, from its files of slopes."""
    rows, span, bounds = open_rows(task.source), task.leaves.span, task.leaves.bounds()
    assert task.request is not None
    sums = []
    for i in range(first, last):
        slopes, weights = read_rows(task.slopes_of(i), scale.size), leaf_weights(rows, span, bounds[i])
        sums.append(leaf_conjugates(task.request.loss, slopes, weights, scale))
    return sums


def read_rows(path: Location, columns: int | None = None, dtype: Any = np.float64) -> NDArray[Any]:
    """An npy file (rows, columns) of a pass, mapped; with its last axis as columns by default.

    Raises `DamagedError` if it is missing or corrupt.
    """
    array = map_array(path, dtype)
    return array.reshape(-1, columns or array.shape[-1])


# ----------------------------------------------------------------------------------------------------------------------
# The full-gradient pass on Dask: runs of leaves and their sum, with the bits of `passes.LocalPasses`.
#
# Only paths and small values go through this process, which waits. Tasks are pure functions of their arguments and
# commit files atomically, so any of them may run twice or on another worker.


TASKS_PER_SLOT = 2  # more than one, to balance the load
MEMORY_SHARE = 0.5  # of a task's memory; the rest is for rows, the interpreter and the page cache
HELD = 3 + 2 * TASKS_PER_SLOT
"""Gradients of a task besides those of its tree: the one that it sums, the weights and a copy that is sent; and the
sums of runs that wait, with those of other workers, to be added."""

NEWTON_NONZEROS = 1 << 24
"""Up to this size the rows fit in any worker, both by rows and by columns, and the optimum is found by Newton steps in
one task, with a tenth of the passes. It depends on the data only, so that bits do not depend on the cluster."""


class ClusterPasses(Passes):
    """Passes over a span of a store, run by the workers of a client.

    Parameters
    ----------
    client : distributed.Client
    source : RowsSource
    work : Location
        Folder for files, accessible to the workers and used by one run at a time. `drop` deletes the files of a pass.
    span : Span, optional
        All rows by default.
    leaf_nonzeros : int, optional
        See `passes.Leaves`.

    Raises
    ------
    SparseocoError
        A pass cannot be run (`StorageError`: a corrupt shard, a full disk).
    InputError
        The sums of all columns do not fit in a worker.
    """

    def __init__(
        self,
        client: Client,
        source: RowsSource,
        work: Location,
        span: Span | None = None,
        *,
        leaf_nonzeros: int | None = None,
    ) -> None:
        self.client, self.source, self.work = client, source, work.resolve()
        store = open_store(source.store)
        shape = Shape(store.n_rows, store.n_features, store.manifest.nonzeros)
        self.shape = shape.with_intercept() if source.intercept else shape
        self.span = (span or Span()).within(store.n_rows)
        self.leaves = Leaves(self.span, self.shape, leaf_nonzeros)
        self.bounds = self.leaves.bounds()
        self._pool = TaskPool(client, "A pass failed")
        make_folder(self.work)

    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """The only one of the `slopes` of the result is the `Pass`."""
        path = self.work / f"weights-{uuid.uuid4().hex}.npy"
        write_array(path, np.ascontiguousarray(weights, np.float64))
        done = self.run(path, request)
        remove_file(path)
        return PassResult(*done.sums(), (done,))

    def run(self, weights: Location | None, request: PassRequest | None) -> Pass:
        """One pass at the weights of a file (features, columns), or at weights 0."""
        self._check_memory(1 if request is None else len(request.positive))
        task = Pass(self.source, self.leaves, str(self.work / uuid.uuid4().hex), request)
        path = None if weights is None else weights.resolve()
        for outcome in self._pool.run([path], lambda path: self._start(task, path)):
            self._pool.check(outcome)
        return task

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `passes.Passes.conjugates`; tasks over files of slopes, which read rows only for their weights."""
        (task,), runs = result.slopes, self._runs()
        calls = [(task, *run, scale) for run in runs]
        parts = self._pool.map(conjugate_sums, calls, placements(self.client, len(runs)))
        leaves = [sums for part in parts for sums in part]
        return np.asarray(tree_sum(leaves.__getitem__, 0, len(leaves)))

    def _squares(self) -> Floats:
        done = self.run(None, None)
        squares = done.sums().gradient[:, 0]
        done.remove()
        return squares

    def drop(self, result: PassResult) -> None:
        """Delete the files of a pass."""
        result.slopes[0].remove()

    def _start(self, task: Pass, weights: Location | None) -> Future:
        """Submit the runs, their tree sum, and the task that writes it.

        Hosts get the same runs in every pass, so that each lays out only its own shards.
        """
        runs = self._runs()
        places = placements(self.client, len(runs))
        read = None if weights is None else self._pool.submit(read_weights, weights)
        sums = [self._pool.submit(run_sums, task, *run, read, **where) for run, where in zip(runs, places, strict=True)]
        return self._pool.submit(write_total, task, self._pool.tree(sums))

    def _runs(self) -> list[tuple[int, int]]:
        """(first, last) leaves of each run: as many, at least, as `TASKS_PER_SLOT` per thread, if there are."""
        slots = worker_shape(self.client)[0]
        leaves = len(self.bounds)
        count = min(leaves, 1 << (TASKS_PER_SLOT * slots - 1).bit_length())
        size = leaves // count
        return [(first, first + size) for first in range(0, leaves, size)]

    def _check_memory(self, columns: int) -> None:
        """Raises `InputError` if the sums of the columns do not fit in a worker."""
        memory = worker_shape(self.client)[1]
        first, last = self._runs()[0]
        needed = 8 * self.shape.n_features * columns * ((last - first).bit_length() + HELD)
        if needed > memory * MEMORY_SHARE:
            raise InputError(
                f"A pass needs {needed / MEMORY_SHARE / 1e9:.1f} GB for {columns} columns ({self.shape.n_features:,} "
                f"features); a task has {memory / 1e9:.1f} GB: keep fewer features at ingest (--min-df, "
                "--max-features, --hash-bits) or give workers more memory.",
                code="out-of-memory",
            )
