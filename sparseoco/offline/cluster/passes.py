"""The full-gradient pass on Dask: runs of leaves, then ranges of features, with the bits of `passes.LocalPasses`.

Tasks are those of `pass_tasks`. Only paths and small values go through the scheduler and this process, which waits.
Tasks are pure functions of their arguments and commit files atomically, so any of them may run twice or on another
worker; a pass whose total exists is not repeated.

Columns are split into groups if the sums of all columns do not fit in a worker: memory is bounded by features × columns
of a group, whatever the size of the corpus.
"""

import hashlib
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.execution.clusters import placements, worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.cluster.pass_tasks import (
    Hosts,
    Pass,
    RowsSource,
    compute_run,
    conjugate_sums,
    read_rows,
    remove_scratch,
    subtree_sums,
    total_is_complete,
    write_total,
)
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import Leaves, PassRequest, PassResult, Shape, Span, tree_sum
from sparseoco.storage.checkpoints import read_checkpoint, write_array
from sparseoco.storage.commit import digest_value, make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import store_reference
from sparseoco.store.shards import Store
from sparseoco.store.weighting import COUNTS, Weighting

TASKS_PER_SLOT = 2  # more than one, to balance the load
MEMORY_SHARE = 0.5  # of a task's memory; the rest is for rows, the interpreter and the page cache
HELD = 3  # gradients of a run besides those of the tree: the one it sums, its buffer and the weights
RANGE_BYTES = 16 << 20  # of a gradient, at least, in a range of features

NEWTON_NONZEROS = 1 << 24
"""Up to this size the rows fit in any worker, both by rows and by columns, and the optimum is found by Newton steps in
one task, with a tenth of the passes. It depends on the data only, so that bits do not depend on the cluster."""


class PassFiles(NamedTuple):
    """Files of one pass over the columns first..last."""

    first: int
    last: int
    task: Pass
    parts: int
    """Ranges of features, each with its total."""
    leaves: int

    @property
    def totals(self) -> list[Location]:
        """See `Pass.total`."""
        return [self.task.total(part, self.parts) for part in range(self.parts)]

    @property
    def slopes(self) -> list[Location]:
        """See `Pass.slopes`."""
        return [self.task.slopes(leaf) for leaf in range(self.leaves)]

    def gradient(self, out: Floats) -> tuple[Floats, Floats]:
        """Read the gradient into `out` (features, columns), of any strides; returns (loss_sum, exact_sum).

        Raises `StorageError` if a file is missing or corrupt.
        """
        for part, path in enumerate(self.totals):
            begin, end = self.task.features(part, self.parts)
            with read_checkpoint(path) as (_, read):
                read("gradient", out[begin:end])
                sums = read("loss_sum"), read("exact_sum")
        return sums

    def remove(self) -> None:
        """Delete them, but not the weights."""
        for path in (*self.totals, *self.slopes):
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
        store: Store,
        work: Location,
        span: Span | None = None,
        weighting: Weighting = COUNTS,
        class_weights: tuple[float, ...] | None = None,
        intercept: bool = False,
        *,
        leaf_nonzeros: int | None = None,
    ) -> None:
        self.client, self.store, self.work = client, store, work.resolve()
        self._source = RowsSource(store_reference(store), weighting, class_weights, intercept)
        shape = Shape(store.n_rows, store.n_features, store.manifest.nonzeros)
        self.shape = shape.with_intercept() if intercept else shape
        self.span = (span or Span()).within(store.n_rows)
        self.leaves = Leaves(self.span, self.shape, leaf_nonzeros)
        self.bounds = self.leaves.bounds()
        self._scratch = f"passes-{digest_value(str(self.work))[:32]}"
        self._pool = TaskPool(client, "A pass failed")
        make_folder(self.work)

    def totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """See `passes.Passes.totals`; `slopes` are the `PassFiles` of each group of columns."""
        weights = np.ascontiguousarray(weights, np.float64)
        content = hashlib.sha256(weights.data).hexdigest()
        path = self.work / f"weights-{content[:32]}.npy"
        write_array(path, weights)
        groups = self.run(path, content, request)
        gradient = np.empty(weights.shape)
        sums = [files.gradient(gradient[:, files.first : files.last]) for files in groups]
        loss_sum, exact_sum = (np.concatenate(parts) for parts in zip(*sums, strict=True))
        return PassResult(loss_sum, exact_sum, gradient, tuple(groups))

    def run(self, weights: Location | None, identity: str, request: PassRequest) -> list[PassFiles]:
        """One pass at the weights of a file (features, columns); returns its files per group of columns.

        `weights` is None for weights 0; `identity` is different for different weights.
        """
        width, columns = self._group_width(), len(request.positive)
        groups = []
        for first in range(0, columns, width):
            last = min(first + width, columns)
            task = self._pass(identity, weights, (first, last), request.columns(first, last))
            groups.append(self._complete(task, first, last))
        return groups

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
            runs = self._runs()
            tasks = [(files.task, *run, scale[files.first : files.last]) for run in runs]
            parts = self._pool.map(conjugate_sums, tasks, placements(self.client, len(runs)))
            leaves = [sums for part in parts for sums in part]
            out.append(np.asarray(tree_sum(leaves.__getitem__, 0, len(leaves))))
        return np.concatenate(out)

    def squares(self) -> Floats:
        """See `passes.Passes.squares`."""
        squares = np.empty((self.shape.n_features, 1))
        self._complete(self._pass("squares", None, (0, 1), None), 0, 1).gradient(squares)
        return squares[:, 0]

    def drop(self, result: PassResult) -> None:
        """Delete the files of a pass."""
        for files in result.slopes:
            files.remove()
            remove_file(location(str(files.task.weights)))

    def columns(self) -> None:
        """See `passes.Passes.columns`: rows are on the workers."""

    def sample_weights(self) -> None:
        """See `passes.Passes.sample_weights`."""

    def clear(self) -> None:
        """Delete the folder of files."""
        remove_folder(self.work)

    def _pass(
        self, identity: Any, weights: Location | None, columns: tuple[int, int], request: PassRequest | None
    ) -> Pass:
        """The description of a pass: equal requests for equal data have files of the same names."""
        rows = [self._source.weighting.model_dump(mode="json"), *self._source[2:], list(self.span)]
        own = [self.leaves.nonzeros, identity, columns, None if request is None else list(request)]
        digest = digest_value([self.store.manifest.digest, *rows, *own, __version__])[:32]
        files, scratch = str(self.work / digest), f"{self._scratch}/{digest}"
        path = None if weights is None else str(weights.resolve())
        return Pass(self._source, self.leaves, files, scratch, path, columns, request)

    def _complete(self, task: Pass, first: int, last: int) -> PassFiles:
        """Run a pass unless its files exist."""
        hosts, where = self._hosts()
        slots, _ = worker_shape(self.client)
        size = 8 * (last - first) * self.shape.n_features
        parts = max(1, min(max(len(where), slots // len(where)), size // RANGE_BYTES, self.shape.n_features))
        leaves = 0 if task.request is None else len(self.bounds)
        files = PassFiles(first, last, task, parts, leaves)
        if not self._exists(files):
            self._sum(task, parts, hosts, where)
        return files

    def _exists(self, files: PassFiles) -> bool:
        """Whether all files of a pass exist and its totals are intact."""
        if not all(path.exists() for path in (*files.totals, *files.slopes)):
            return False
        return all(self._pool.map(total_is_complete, [(files.task, part, files.parts) for part in range(files.parts)]))

    def _runs(self) -> list[tuple[int, int]]:
        """(first, last) leaves of each run: as many, at least, as `TASKS_PER_SLOT` per thread, if there are."""
        slots, _ = worker_shape(self.client)
        leaves = len(self.bounds)
        count = min(leaves, 1 << (TASKS_PER_SLOT * slots - 1).bit_length())
        size = leaves // count
        return [(first, first + size) for first in range(0, leaves, size)]

    def _hosts(self) -> tuple[Hosts, list[dict[str, Any]]]:
        """The runs of each host, and the arguments of `TaskPool.submit` that place a task there.

        Hosts get the same runs in every pass, so that each lays out only its own shards.
        """
        runs = self._runs()
        groups = [(where, len(list(own))) for where, own in groupby(placements(self.client, len(runs)))]
        edges = np.cumsum([0, *(count for _, count in groups)]).tolist()
        return Hosts(tuple(edges), runs[0][1] - runs[0][0]), [where for where, _ in groups]

    def _group_width(self) -> int:
        """Number of columns whose sums fit in a worker."""
        _, memory = worker_shape(self.client)
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

    def _sum(self, task: Pass, parts: int, hosts: Hosts, where: list[dict[str, Any]]) -> None:
        """Compute the runs on their hosts, then the total of every range of features, on one host each."""
        runs = [(task, first, first + hosts.size) for first in range(0, hosts.edges[-1] * hosts.size, hosts.size)]
        placed = [where[host] for host, (a, b) in enumerate(pairwise(hosts.edges)) for _ in range(a, b)]
        self._pool.map(compute_run, runs, placed)

        def start(part: int) -> Future:
            host, features = part % len(where), task.features(part, parts)
            others = [
                self._pool.submit(subtree_sums, task, hosts, other, features, **where[other])
                for other in range(len(where))
                if other != host
            ]
            return self._pool.submit(write_total, task, hosts, host, others, part, parts, **where[host])

        for outcome in self._pool.run(range(parts), start):
            self._pool.check(outcome)
        self._pool.map(remove_scratch, [(self._scratch,)] * len(where), where)
