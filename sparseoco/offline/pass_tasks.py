"""The full-gradient pass on Dask: a map over leaves and a tree sum, bit for bit what `passes.LocalPasses` gives.

A task takes an aligned run of leaves: it opens the worker's corpus, reads the weights from a file, leaves a file of
slopes a leaf, and keeps its sums in the worker, from where the next task of the tree takes them. The root writes the
total. Only paths travel through the scheduler. Tasks are pure functions of their arguments and files are written whole,
so any of them may run twice or elsewhere; a pass whose total is there already is not run again.

Columns are split into groups where sums of all of them would not fit in a worker: memory is bounded by features ×
columns of a group, whatever the size of the corpus.
"""

import hashlib
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future, KilledWorker

from sparseoco import __version__
from sparseoco.core.errors import InputError, StorageError
from sparseoco.execution.clusters import spread_over, worker_shape
from sparseoco.execution.pool import TRIES, TaskError, await_result, send
from sparseoco.offline.passes import (
    Floats,
    Partial,
    PassRequest,
    PassResult,
    Shape,
    Span,
    leaf_bounds,
    leaf_conjugates,
    leaf_squares,
    leaf_totals,
    tree_sum,
)
from sparseoco.storage.checkpoints import DAMAGE, read_checkpoint, read_header, write_array, write_checkpoint
from sparseoco.storage.commit import digest_value, make_folder, on_disk, remove_file, remove_folder, storage_error
from sparseoco.storage.locations import Location, location
from sparseoco.store.cache import corpus_of
from sparseoco.store.shards import Store

TASKS_PER_SLOT = 2  # so that a slower worker can be helped by others
MEMORY_SHARE = 0.5  # of what a task may use; the rest is for rows, the interpreter and the page cache
WAITING = 5  # sums that may lie in a worker, for each of its threads, until their turn comes; the weights are one

NEAR = 1 << 24
"""Nonzeros whose rows have room in any worker, by rows and by columns: the optimum over so few is one task, of Newton
steps, which take a tenth of the passes. It is the data that decides it, so that bits do not depend on the cluster."""


class PassFiles(NamedTuple):
    """Files of one pass over columns first..last.

    weights  npy (features, columns)
    total    npz loss_sum, exact_sum (columns,), gradient (features, columns)
    slopes   npy (rows of the leaf, columns), one a leaf
    """

    first: int
    last: int
    weights: Location
    total: Location
    slopes: tuple[Location, ...]


class ClusterPasses:
    """Passes over a span of a store, run by the workers of `client`, with its files in the folder `work`.

    The folder must be seen by the workers and belong to one run at a time; `drop` deletes the files of a pass and
    `clear` whatever is left.

    Raises `SparseocoError` (`StorageError` for a damaged shard or a full disk) if a pass cannot be run, `InputError`
    if sums of one column do not fit in a worker.
    """

    def __init__(self, client: Client, store: Store, work: Location, span: Span | None = None) -> None:
        self.client, self.store, self.work = client, store, work.resolve()
        self.shape = Shape(store.n_rows, store.n_features, store.manifest.nonzeros)
        self.span = (span or Span()).within(store.n_rows)
        self.bounds = leaf_bounds(self.span, self.shape)
        make_folder(self.work)

    def totals(self, weights: Floats, question: PassRequest) -> PassResult:
        """See `passes.Passes.totals`; `slopes` are the `PassFiles` of each group of columns."""
        groups = self.run(weights, question)
        parts = [_read_partial(files.total) for files in groups]
        return PassResult(
            np.concatenate([part.loss_sum for part in parts]),
            np.concatenate([part.exact_sum for part in parts]),
            parts[0].gradient if len(parts) == 1 else np.hstack([part.gradient for part in parts]),
            tuple(groups),
        )

    def run(self, weights: Floats, question: PassRequest) -> list[PassFiles]:
        """One pass at `weights` (features, columns): the files it leaves, a group of columns after the other."""
        width = self._group_width()
        columns = weights.shape[1]
        return [
            self._run_group(weights[:, first : first + width], question.columns(first, first + width), first)
            for first in range(0, columns, width)
        ]

    def slopes(self, totals: PassResult) -> Floats:
        """See `passes.Passes.slopes`."""
        return np.hstack(
            [
                np.concatenate([read_rows(path, files.last - files.first) for path in files.slopes])
                for files in totals.slopes
            ]
        )

    def conjugates(self, totals: PassResult, question: PassRequest, scale: Floats) -> Floats:
        """See `passes.Passes.conjugates`: tasks over files of slopes, which read no data."""
        out = []
        for files in totals.slopes:
            scales = scale[files.first : files.last]
            futures = []
            for first, last in self._task_bounds(1):
                names = [str(path) for path in files.slopes[first:last]]
                futures.append(send(self.client, "conjugates", _conjugates, question.loss, names, scales))
            leaves = [sums for future in futures for sums in self._result(future)]
            out.append(np.asarray(tree_sum(leaves.__getitem__, 0, len(leaves))))
        return np.concatenate(out)

    def squares(self) -> Floats:
        """See `passes.Passes.squares`."""
        path = self.work / f"squares-{self._digest('squares')}.npy"
        if not path.exists():
            store = str(self.store.folder.resolve())
            self._sum(path, _squares, store, self.span, self.bounds, self.shape.n_features)
        return np.array(read_rows(path, 1)[:, 0])  # whoever asked may write into it

    def drop(self, totals: PassResult) -> None:
        """Delete the files of a pass."""
        for files in totals.slopes:
            for path in (files.weights, files.total, *files.slopes):
                remove_file(path)

    def columns(self) -> None:
        """See `Passes.columns`: rows are on the workers."""

    def clear(self) -> None:
        """Delete the folder of files."""
        remove_folder(self.work)

    def _run_group(self, weights: Floats, question: PassRequest, first: int) -> PassFiles:
        weights = np.ascontiguousarray(weights, np.float64)
        content = hashlib.sha256(weights.data).hexdigest()
        digest = self._digest([list(question), content])
        named = self.work / f"weights-{digest}.npy"
        write_array(named, weights)
        files = PassFiles(
            first,
            first + weights.shape[1],
            named,
            self.work / f"total-{digest}.npz",
            tuple(self.work / f"slopes-{digest}-{i}.npy" for i in range(len(self.bounds))),
        )
        if not _whole(files):
            slopes = [str(path) for path in files.slopes]
            store = str(self.store.folder.resolve())
            self._sum(files.total, _totals, store, self.span, self.bounds, str(named), question, slopes)
        return files

    def _digest(self, value: Any) -> str:
        """A name for a pass: equal questions about equal data have equal ones."""
        return digest_value([self.store.manifest.digest, list(self.span), value, __version__])[:32]

    def _task_bounds(self, each_slot: int | None = None) -> list[tuple[int, int]]:
        """(first, last) leaves of every task: aligned runs, as many as keep the workers busy."""
        wanted = each_slot or TASKS_PER_SLOT
        slots, _ = worker_shape(self.client)
        leaves = len(self.bounds)
        count = min(leaves, 1 << (wanted * slots - 1).bit_length())
        each = leaves // count
        return [(first, first + each) for first in range(0, leaves, each)]

    def _group_width(self) -> int:
        """How many columns' sums fit in a worker beside each other."""
        _, memory = worker_shape(self.client)
        first, last = self._task_bounds()[0]
        held = (last - first).bit_length() + WAITING  # the sums of a task's part of the tree, and those that wait
        each = 8 * self.shape.n_features * held
        if each > memory * MEMORY_SHARE:
            raise InputError(
                f"A pass needs {each / MEMORY_SHARE / 1e9:.1f} GB a column ({self.shape.n_features:,} features) and a "
                f"task has {memory / 1e9:.1f} GB: keep fewer features at ingest (--min-df, --max-features, "
                "--hash-bits) or give workers more memory."
            )
        return int(memory * MEMORY_SHARE // each)

    def _sum(self, path: Location, function: Callable[..., Any], *arguments: Any) -> None:
        """`function` of every run of leaves, added as a tree; the total is written to `path`.

        Where workers died of one task more often than Dask allows, all of it is tried again, up to `TRIES` times.
        """
        for attempt in range(1, TRIES + 1):
            try:
                self._sum_once(path, function, *arguments)
                return
            except TaskError as error:
                if not isinstance(error.__cause__, KilledWorker) or attempt == TRIES:
                    raise

    def _sum_once(self, path: Location, function: Callable[..., Any], *arguments: Any) -> None:
        tasks = self._task_bounds()
        # A worker lays out the shards of its own part only, pass after pass, unless another has nothing to do.
        places = spread_over(self.client, len(tasks))
        futures = [
            send(self.client, "leaves", function, *arguments, first, last, **place)
            for place, (first, last) in zip(places, tasks, strict=True)
        ]
        while len(futures) > 1:
            futures = [send(self.client, "sum", _add, futures[i], futures[i + 1]) for i in range(0, len(futures), 2)]
        self._result(send(self.client, "total", _write, futures[0], str(path)))

    def _result(self, future: Future) -> Any:
        return await_result(self.client, future, "A pass failed")


def read_rows(path: Location, columns: int) -> Floats:
    """An npy file (rows, columns) of float64 of a pass, mapped. Raises `StorageError` if it cannot be read."""
    try:
        with on_disk(path) as local:  # a copy stays mapped when its name is gone
            with local.open("rb") as file:
                dtype, shape = read_header(file, path.name)
                start = file.tell()
            size = math.prod(shape)
            if dtype != np.float64 or size % columns or local.stat().st_size != start + 8 * size:
                raise ValueError("it is not a whole file of a pass")
            # Nothing can be mapped of an empty file.
            return (
                np.asarray(np.memmap(local, dtype, "r", start, (size // columns, columns)))
                if size
                else np.empty((0, columns))
            )
    except FileNotFoundError as error:
        raise storage_error(error, path) from error
    except DAMAGE as error:
        raise StorageError(f"{path} is damaged: {error}.") from error


def _totals(
    store: str,
    span: Span,
    bounds: list[tuple[int, int]],
    weights: str,
    question: PassRequest,
    slopes: list[str],
    first: int,
    last: int,
) -> Partial:
    source = corpus_of(Store.open(store))
    values = read_rows(location(weights), len(question.positive))

    def leaf(i: int) -> Partial:
        total, s = leaf_totals(source, span, bounds[i], values, question)
        write_array(location(slopes[i]), s)
        return total

    total: Partial = tree_sum(leaf, first, last)
    return total


def _squares(store: str, span: Span, bounds: list[tuple[int, int]], n_features: int, first: int, last: int) -> Floats:
    source = corpus_of(Store.open(store))
    return np.asarray(tree_sum(lambda i: leaf_squares(source, span, bounds[i], n_features), first, last))


def _conjugates(loss: str, slopes: list[str], scale: Floats) -> list[Floats]:
    return [leaf_conjugates(loss, read_rows(location(path), scale.size), scale) for path in slopes]


def _add(a: Any, b: Any) -> Any:
    return a + b


def _write(total: Partial | Floats, path: str) -> None:
    if isinstance(total, Partial):
        write_checkpoint(location(path), {}, total._asdict().items())
    else:
        write_array(location(path), total)


def _read_partial(path: Location) -> Partial:
    with read_checkpoint(path) as (_, read):
        return Partial(*(read(name) for name in Partial._fields))


def _whole(files: PassFiles) -> bool:
    """Whether a pass is there to be used: all its files, its total undamaged."""
    with suppress(StorageError):
        _read_partial(files.total)
        return all(path.exists() for path in files.slopes)
    return False
