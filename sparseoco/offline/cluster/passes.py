"""Full passes over a store on a cluster."""

import hashlib
import shutil
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco import __version__
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
from sparseoco.storage.checkpoints import is_complete, map_array, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import digest_value, make_folder, remove_file
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import host_folder, worker_corpus
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
    """A pass over some columns: the description for its tasks, and its files.

    files    prefix of its files in the shared folder
    scratch  name of its folder on every host, within one of the run
    weights  npy (features, all columns of the pass's weights); None for weights 0
    columns  (first, last) of them
    request  None for the sums of squares of the features
    """

    source: RowsSource
    leaves: Leaves
    files: str
    scratch: str
    weights: str | None
    columns: tuple[int, int]
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

    def gradient(self, out: Floats) -> tuple[Floats, Floats]:
        """Read the gradient into `out` (features, columns), of any strides; returns (loss_sum, exact_sum).

        Raises `StorageError` if a file is missing or corrupt.
        """
        with read_checkpoint(self.total) as (_, read):
            read("gradient", out)
            return read("loss_sum"), read("exact_sum")

    def remove(self) -> None:
        """Delete its files, but not the weights."""
        for path in (self.total, *self.slopes):
            remove_file(path)


def open_rows(source: RowsSource) -> RowSource:
    """The weighted rows of a store on this worker."""
    store = open_store(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: RowSource = corpus if own is None else ClassWeighted(corpus, own)
    return WithIntercept(rows, store.n_features) if source.intercept else rows


def run_sums(task: Pass, first: int, last: int) -> Partial:
    """The sums of leaves first..last, whose slopes are written."""
    run = open_rows(task.source), task.leaves, (first, last), _weights(task), task.request
    return sum_leaves(*run, lambda leaf, slopes: write_array(task.slopes_of(leaf), slopes))


def _weights(task: Pass) -> Floats:
    """(features, columns): the weights of the pass."""
    first, last = task.columns
    if task.weights is None or task.request is None:
        return np.zeros((task.leaves.shape.n_features, last - first))
    return np.ascontiguousarray(read_rows(location(task.weights))[:, first:last])


def write_total(task: Pass, total: Partial) -> None:
    """Write the sum of all runs."""
    write_checkpoint(task.total, {}, (total._asdict() | {"gradient": total.gradient.dense()}).items())


def remove_scratch(name: str) -> None:
    """Remove a folder of this host."""
    shutil.rmtree(host_folder() / name, ignore_errors=True)


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
# Only paths and small values go through the scheduler and this process, which waits.
# Tasks are pure functions of their arguments and commit files atomically, so any of them may run twice or on another
# worker; a pass whose total exists is not repeated.
#
# Columns are split into groups if the sums of all columns do not fit in a worker: memory is bounded by features ×
# columns of a group, whatever the size of the corpus.


TASKS_PER_SLOT = 2  # more than one, to balance the load
MEMORY_SHARE = 0.5  # of a task's memory; the rest is for rows, the interpreter and the page cache
HELD = 4 + 2 * TASKS_PER_SLOT
"""Gradients of a task besides those of its tree: the one that it sums, its buffer, the weights and a dense copy; and
the sums of runs that wait, with those of other workers, to be added."""

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
        The sums of one column do not fit in a worker.
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
        self._scratch = f"passes-{digest_value(str(self.work))[:32]}"
        self._pool = TaskPool(client, "A pass failed")
        make_folder(self.work)

    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """`slopes` of the result are the `Pass` of each group of columns."""
        weights = np.ascontiguousarray(weights, np.float64)
        content = hashlib.sha256(weights.data).hexdigest()
        path = self.work / f"weights-{content[:32]}.npy"
        write_array(path, weights)
        groups = self.run(path, content, request)
        gradient = np.empty(weights.shape)
        sums = [group.gradient(gradient[:, slice(*group.columns)]) for group in groups]
        loss_sum, exact_sum = (np.concatenate(parts) for parts in zip(*sums, strict=True))
        return PassResult(loss_sum, exact_sum, gradient, tuple(groups))

    def run(self, weights: Location | None, identity: str, request: PassRequest) -> list[Pass]:
        """One pass at the weights of a file (features, columns), by groups of columns.

        `weights` is None for weights 0; `identity` is different for different weights.
        """
        width, columns = self._group_width(), len(request.positive)
        groups = []
        for first in range(0, columns, width):
            last = min(first + width, columns)
            groups.append(self._complete(identity, weights, (first, last), request.columns(first, last)))
        return groups

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `passes.Passes.conjugates`; tasks over files of slopes, which read rows only for their weights."""
        out = []
        for group in result.slopes:
            runs = self._runs()
            tasks = [(group, *run, scale[slice(*group.columns)]) for run in runs]
            parts = self._pool.map(conjugate_sums, tasks, placements(self.client, len(runs)))
            leaves = [sums for part in parts for sums in part]
            out.append(np.asarray(tree_sum(leaves.__getitem__, 0, len(leaves))))
        return np.concatenate(out)

    def _squares(self) -> Floats:
        squares = np.empty((self.shape.n_features, 1))
        self._complete("squares", None, (0, 1), None).gradient(squares)
        return squares[:, 0]

    def drop(self, result: PassResult) -> None:
        """Delete the files of a pass."""
        for group in result.slopes:
            group.remove()
            remove_file(location(str(group.weights)))

    def _complete(
        self, identity: str, weights: Location | None, columns: tuple[int, int], request: PassRequest | None
    ) -> Pass:
        """Run a pass unless its files exist and its total is intact.

        Equal requests for equal data have files of the same names.
        """
        source = self.source
        rows = [source.weighting.model_dump(mode="json"), source.class_weights, source.intercept, list(self.span)]
        own = [self.leaves.nonzeros, identity, columns, None if request is None else list(request)]
        digest = digest_value([source.store.digest, *rows, *own, __version__])[:32]
        files, scratch = str(self.work / digest), f"{self._scratch}/{digest}"
        path = None if weights is None else str(weights.resolve())
        task = Pass(source, self.leaves, files, scratch, path, columns, request)
        exist = all(file.exists() for file in (task.total, *task.slopes))
        if not (exist and self._pool.call(is_complete, task.total)):
            for outcome in self._pool.run([task], self._start):
                self._pool.check(outcome)
            hosts = [where for where, _ in groupby(placements(self.client, worker_shape(self.client)[0]))]
            self._pool.map(remove_scratch, [(self._scratch,)] * len(hosts), hosts)
        return task

    def _start(self, task: Pass) -> Future:
        """Submit the runs, their tree sum, and the task that writes it.

        Hosts get the same runs in every pass, so that each lays out only its own shards.
        """
        runs = self._runs()
        places = placements(self.client, len(runs))
        sums = [self._pool.submit(run_sums, task, *run, **where) for run, where in zip(runs, places, strict=True)]
        return self._pool.submit(write_total, task, self._pool.tree(sums))

    def _runs(self) -> list[tuple[int, int]]:
        """(first, last) leaves of each run: as many, at least, as `TASKS_PER_SLOT` per thread, if there are."""
        slots = worker_shape(self.client)[0]
        leaves = len(self.bounds)
        count = min(leaves, 1 << (TASKS_PER_SLOT * slots - 1).bit_length())
        size = leaves // count
        return [(first, first + size) for first in range(0, leaves, size)]

    def _group_width(self) -> int:
        """Number of columns whose sums fit in a worker."""
        memory = worker_shape(self.client)[1]
        first, last = self._runs()[0]
        column = 8 * self.shape.n_features * ((last - first).bit_length() + HELD)
        if column > memory * MEMORY_SHARE:
            raise InputError(
                f"A pass needs {column / MEMORY_SHARE / 1e9:.1f} GB per column ({self.shape.n_features:,} features); "
                f"a task has {memory / 1e9:.1f} GB: keep fewer features at ingest (--min-df, --max-features, "
                "--hash-bits) or give workers more memory.",
                code="out-of-memory",
            )
        return int(memory * MEMORY_SHARE // column)
