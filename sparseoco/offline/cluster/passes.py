"""Full passes over a store on a cluster."""

import hashlib
import shutil
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, Future
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError
from sparseoco.execution.clusters import placements, worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.passes import (
    FeatureSums,
    Floats,
    Leaves,
    Partial,
    PassRequest,
    PassResult,
    Shape,
    Source,
    Span,
    WithIntercept,
    leaf_conjugates,
    leaf_squares,
    leaf_totals,
    leaf_weights,
    tree_sum,
)
from sparseoco.storage.checkpoints import is_complete, map_array, read_checkpoint, write_array, write_checkpoint
from sparseoco.storage.commit import digest_value, make_folder, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import host_file, host_folder, worker_corpus
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.stream import ClassWeighted

# ----------------------------------------------------------------------------------------------------------------------
# The tasks of a full-gradient pass, and the tree in which their sums are added.
#
# A *run* is an aligned range of leaves. Its sums stay in a file of the host that computed them, from which all
# processes of that host read, mapped. A task for a range of features then adds the runs of its host in the fixed tree
# of the leaves; of another host it needs the sums of whole subtrees only, which are the same whoever adds them. So
#     each
# gradient crosses the network at most once per host if the runs of a host are a subtree, and no task but a run holds
# one whole.
#
# A run whose file is not on this host, because the host that had it is gone, is computed again.


class RowsSource(NamedTuple):
    """The rows that a task reads: the path of a store, the weighting of its counts, the weights of its classes, and
    whether the intercept is the last feature."""

    store: StoreReference
    weighting: Weighting
    class_weights: tuple[float, ...] | None = None
    intercept: bool = False


class Pass(NamedTuple):
    """A pass over some columns, for its tasks.

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

    def slopes(self, leaf: int) -> Location:
        """npy (rows of the leaf, columns)."""
        return location(f"{self.files}-slopes-{leaf}.npy")

    def total(self, part: int, parts: int) -> Location:
        """npz `loss_sum` and `exact_sum` (columns,), `gradient` of one of `parts` equal ranges of the features."""
        return location(f"{self.files}-total-{part}-of-{parts}.npz")

    def features(self, part: int, parts: int) -> tuple[int, int]:
        """The features (first, last) of a range."""
        n_features = self.leaves.shape.n_features
        return n_features * part // parts, n_features * (part + 1) // parts


class Hosts(NamedTuple):
    """Which host has which runs: `edges` (hosts + 1,), the first run of every host and the end; `size` leaves a run."""

    edges: tuple[int, ...]
    size: int

    def add(self, subtree: Callable[[int, int, int], Any], first: int = 0, last: int = -1) -> Any:
        """The sum of runs first..last, all by default, from that of the largest subtrees within a host.

        ``subtree(host, first, last)`` returns the sum of a subtree.
        """
        last = self.edges[-1] if last == -1 else last
        host = bisect_right(self.edges, first) - 1
        if last <= self.edges[host + 1]:
            return subtree(host, first, last)
        middle = (first + last) // 2
        return self.add(subtree, first, middle) + self.add(subtree, middle, last)

    def subtrees(self, host: int) -> list[tuple[int, int]]:
        """The (first, last) runs of the largest subtrees of a host, in order."""
        found = self.add(lambda owner, first, last: [(first, last)] if owner == host else [])
        return list(found)


def open_rows(source: RowsSource) -> Source:
    """The weighted rows of a store on this worker."""
    store = open_store(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: Source = corpus if own is None else ClassWeighted(corpus, own)
    return WithIntercept(rows, store.n_features) if source.intercept else rows


def compute_run(task: Pass, first: int, last: int) -> None:
    """Compute the sums of leaves first..last into a file of this host, unless it exists."""
    run_sums(task, first, last)


def run_sums(task: Pass, first: int, last: int) -> Partial:
    """The sums of leaves first..last, mapped from files of this host, which are written if missing or corrupt."""
    name = str(host_folder() / task.scratch / f"{first}-{last}")
    losses, features, values = (Path(f"{name}-{part}.npy") for part in ("losses", "features", "values"))
    n_features, columns = task.leaves.shape.n_features, task.columns[1] - task.columns[0]

    def read() -> Partial:
        gradient = read_rows(values, columns)
        found = read_rows(features, 1, np.int64)[:, 0] if len(gradient) < n_features else None
        loss_sum, exact_sum = read_rows(losses, columns)
        return Partial(loss_sum, exact_sum, FeatureSums(n_features, found, gradient))

    with suppress(DamagedError):
        return read()
    sums = _sum_leaves(task, first, last)
    write_array(losses, np.stack(sums[:2]), sync=False)
    if sums.gradient.features is not None:
        write_array(features, sums.gradient.features, sync=False)
    write_array(values, sums.gradient.values, sync=False)  # the last one
    return read()


def _sum_leaves(task: Pass, first: int, last: int) -> Partial:
    rows, span, bounds = open_rows(task.source), task.leaves.span, task.leaves.bounds()
    request, values = task.request, _weights(task)
    buffer = task.leaves.buffer(values.shape[1])

    def leaf(i: int) -> Partial:
        if request is None:
            return leaf_squares(rows, span, bounds[i], buffer)
        total, s = leaf_totals(rows, span, bounds[i], values, request, buffer)
        write_array(task.slopes(i), s)
        return total

    return tree_sum(leaf, first, last)  # type: ignore[no-any-return]


def _weights(task: Pass) -> Floats:
    """(features, columns): the weights of the pass, mapped if it is over all columns."""
    first, last = task.columns
    if task.weights is None or task.request is None:
        return np.zeros((task.leaves.shape.n_features, last - first))
    local = host_file(location(task.weights), host_folder() / task.scratch)
    return np.ascontiguousarray(read_rows(local)[:, first:last])


def subtree_sums(task: Pass, hosts: Hosts, host: int, features: tuple[int, int]) -> list[Partial]:
    """The sums of a host's largest subtrees over a range of features."""
    return [_add_runs(task, hosts, features, *runs) for runs in hosts.subtrees(host)]


def write_total(task: Pass, hosts: Hosts, host: int, others: Sequence[list[Partial]], part: int, parts: int) -> None:
    """Write the total over a range of features, on a host, from the subtrees of the `others` (of all but this)."""
    features = task.features(part, parts)
    given = iter([sums for own in others for sums in own])

    def subtree(owner: int, first: int, last: int) -> Partial:
        return _add_runs(task, hosts, features, first, last) if owner == host else next(given)

    total = hosts.add(subtree)
    arrays = total._asdict() | {"gradient": total.gradient.dense()}
    write_checkpoint(task.total(part, parts), {}, arrays.items())


def total_is_complete(task: Pass, part: int, parts: int) -> bool:
    """Whether the total over a range of features exists and passes its checksums."""
    return is_complete(task.total(part, parts))


def _add_runs(task: Pass, hosts: Hosts, features: tuple[int, int], first: int, last: int) -> Partial:
    def run(i: int) -> Partial:
        return run_sums(task, i * hosts.size, (i + 1) * hosts.size).of(*features)

    return tree_sum(run, first, last)  # type: ignore[no-any-return]


def remove_scratch(name: str) -> None:
    """Remove a folder of this host."""
    shutil.rmtree(host_folder() / name, ignore_errors=True)


def conjugate_sums(task: Pass, first: int, last: int, scale: Floats) -> list[Floats]:
    """Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) of leaves first..last of a pass, from its files of slopes."""
    rows, span, bounds = open_rows(task.source), task.leaves.span, task.leaves.bounds()
    assert task.request is not None
    return [
        leaf_conjugates(
            task.request.loss, read_rows(task.slopes(i), scale.size), leaf_weights(rows, span, bounds[i]), scale
        )
        for i in range(first, last)
    ]


def read_rows(path: Location, columns: int | None = None, dtype: Any = np.float64) -> NDArray[Any]:
    """An npy file (rows, columns) of a pass, mapped; with its last axis as columns by default.

    Raises `DamagedError` if it is missing or corrupt.
    """
    array = map_array(path, dtype)
    return array.reshape(-1, columns or array.shape[-1])


# ----------------------------------------------------------------------------------------------------------------------
# The full-gradient pass on Dask: runs of leaves, then ranges of features, with the bits of `passes.LocalPasses`.
#
# Tasks are those of `pass_tasks`. Only paths and small values go through the scheduler and this process, which waits.
# Tasks are pure functions of their arguments and commit files atomically, so any of them may run twice or on another
# worker; a pass whose total exists is not repeated.
#
# Columns are split into groups if the sums of all columns do not fit in a worker: memory is bounded by features ×
# columns of a group, whatever the size of the corpus.


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
