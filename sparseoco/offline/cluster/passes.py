"""Full passes over a store on a cluster, and what they find: the optimum, and the least penalty without weights."""

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.sparse when it is used
from distributed import Client, Future, worker_client
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, StorageError, unsupported
from sparseoco.core.logs import progress_of
from sparseoco.execution.clusters import Call, TaskPool, placements, worker_shape
from sparseoco.kernels.columns import ACCUMULATE, RowBatch, loss_kernels
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.offline import passes as full_passes
from sparseoco.offline.optimum import ColumnProgress, Newton, OptimumProblem, Regulariser, solve
from sparseoco.offline.passes import WHOLE, Floats, PassRequest, PassResult, RowSource, Span, SpanRows, row_weights
from sparseoco.offline.quasi_newton import QuasiNewton
from sparseoco.storage import commit, tables
from sparseoco.storage.commit import commit_json, digest_value, make_folder, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.corpus import check_worker_running, worker_corpus
from sparseoco.store.shards import Session, StoreReference, open_store, store_reference
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.training.block import FeatureGroups
from sparseoco.training.models import write_model
from sparseoco.training.options import OptimumOptions
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
    leaves: full_passes.Leaves
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

    def sums(self) -> full_passes.Partial:
        """Read the total. Raises `StorageError` if its file is missing or corrupt."""
        with tables.read_checkpoint(self.total) as (_, read):
            return full_passes.Partial(*(read(name) for name in full_passes.Partial._fields))

    def remove(self) -> None:
        """Delete its files."""
        for path in (self.total, *self.slopes):
            remove_file(path)


def open_rows(source: RowsSource) -> RowSource:
    """The weighted rows of a store on this worker."""
    store = open_store(source.store)
    corpus, own = worker_corpus(store, source.weighting), source.class_weights
    rows: RowSource = corpus if own is None else ClassWeighted(corpus, own)
    return full_passes.WithIntercept(rows, store.n_features) if source.intercept else rows


def read_weights(path: Location) -> Floats:
    """(features, columns): the weights of a pass, which Dask sends to the workers that sum it."""
    return np.array(read_rows(path))


def run_sums(task: Pass, first: int, last: int, weights: Floats | None) -> full_passes.Partial:
    """The sums of leaves first..last, whose slopes are written, at these weights, 0 if None."""
    if weights is None:
        weights = np.zeros((task.leaves.shape.n_features, 1 if task.request is None else len(task.request.positive)))
    weights = np.require(weights, requirements="A")  # Dask may send it unaligned, and kernels assume alignment
    rows, leaves = SpanRows(open_rows(task.source), task.leaves.span), task.leaves.bounds()[first:last]
    return rows.sum(
        leaves, weights, task.request, lambda i, slopes: tables.write_array(task.slopes_of(first + i), slopes)
    )


def write_total(task: Pass, total: full_passes.Partial) -> None:
    """Write the sum of all runs."""
    tables.write_checkpoint(task.total, {}, total._asdict().items())


def conjugate_sums(task: Pass, first: int, last: int, scale: Floats) -> list[Floats]:
    """Σ_i ω_i·ℓ*(scale_c·s_{i,c}/ω_i) of leaves first..last of a pass, from its files of slopes."""
    rows, bounds = SpanRows(open_rows(task.source), task.leaves.span), task.leaves.bounds()
    assert task.request is not None
    sums = []
    for i in range(first, last):
        slopes, weights = read_rows(task.slopes_of(i), scale.size), rows.sample_weights(bounds[i])
        sums.append(full_passes.leaf_conjugates(task.request.loss, slopes, weights, scale))
    return sums


def read_rows(path: Location, columns: int | None = None) -> Floats:
    """An npy file (rows, columns) of a pass, mapped; with its last axis as columns by default.

    Raises `DamagedError` if it is missing or corrupt.
    """
    array: Floats = tables.map_array(path, np.float64)
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


@dataclass(eq=False)
class ClusterPasses(full_passes.Passes):
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

    client: Client
    source: RowsSource
    work: Location
    span: Span = WHOLE
    _: KW_ONLY
    leaf_nonzeros: int | None = None

    def __post_init__(self) -> None:
        self.work = self.work.resolve()
        store = open_store(self.source.store)
        shape = full_passes.Shape(store.n_rows, store.n_features, store.manifest.nonzeros)
        self.shape = shape.with_intercept() if self.source.intercept else shape
        self.span = self.span.within(store.n_rows)
        self.leaves = full_passes.Leaves(self.span, self.shape, self.leaf_nonzeros)
        self.bounds = self.leaves.bounds()
        self._pool = TaskPool(self.client, "A pass failed")
        make_folder(self.work)

    def _totals(self, weights: Floats, request: PassRequest) -> PassResult:
        """The only one of the `slopes` of the result is the `Pass`."""
        path = self.work / f"weights-{uuid.uuid4().hex}.npy"
        tables.write_array(path, np.ascontiguousarray(weights, np.float64))
        done = self.run(path, request)
        remove_file(path)
        return PassResult(*done.sums(), (done,))

    def run(self, weights: Location | None, request: PassRequest | None) -> Pass:
        """One pass at the weights of a file (features, columns), or at weights 0.

        Raises `InputError` if the sums of the columns do not fit in a worker.
        """
        columns, memory = 1 if request is None else len(request.positive), worker_shape(self.client)[1]
        first, last = self._runs()[0]
        needed = 8 * self.shape.n_features * columns * ((last - first).bit_length() + HELD)
        if needed > memory * MEMORY_SHARE:
            raise InputError(
                f"A pass needs {needed / MEMORY_SHARE / 1e9:.1f} GB for {columns} columns ({self.shape.n_features:,} "
                f"features); a task has {memory / 1e9:.1f} GB: keep fewer features at ingest (--min-df, "
                "--max-features, --hash-bits) or give workers more memory.",
                code="out-of-memory",
            )
        task = Pass(self.source, self.leaves, str(self.work / uuid.uuid4().hex), request)
        for outcome in self._pool.run([task], lambda task: self._start(task, weights)):
            self._pool.check(outcome)
        return task

    def conjugates(self, result: PassResult, request: PassRequest, scale: Floats) -> Floats:
        """See `passes.Passes.conjugates`; tasks over files of slopes, which read rows only for their weights."""
        (task,), runs = result.slopes, self._runs()
        calls = [(task, *run, scale) for run in runs]
        parts = self._pool.map(conjugate_sums, calls, placements(self.client, len(runs)))
        leaves = [sums for part in parts for sums in part]
        return np.asarray(full_passes.tree_sum(leaves.__getitem__, 0, len(leaves)))

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


# ----------------------------------------------------------------------------------------------------------------------
# Problems that are solved by passes of the cluster, for all their columns together.
#
# The solver is in a task on one worker, which starts the tasks of the passes. Tasks follow each other, and each
# continues from the state that the last one saved, so that a killed worker or client loses `SOLVER_SECONDS` of work.
# The client waits and gets a number; a column's result is a file.


FAILURE = "The optimum was not found"
SOLVER_SECONDS = 30.0  # of work in one task of the solver
SOLVER_SHARE = 0.25  # of a task's memory for the solver's vectors, beside those of a run of a pass
LEAF_NONZEROS = 1 << 18  # of a pass of the solver


class PassProblem(NamedTuple):
    """A problem over the rows of a span, and the stopping criteria; `factors` returns those of the passes, and
    `ranges` those of the box, if any."""

    source: RowsSource
    span: Span
    problem: OptimumProblem
    tol: float
    max_passes: int
    factors: Callable[[], Floats] | None = None
    ranges: Callable[[], Floats] | None = None


def write_column(column: ColumnProgress, path: Location) -> None:
    """Write the result of one column that is done."""
    tables.write_checkpoint(path, {}, ColumnProgress.state(column).items())


def read_column(path: Location) -> ColumnProgress:
    """What `write_column` wrote, without the problem of the column. Raises `StorageError`."""
    column = ColumnProgress(0, Regulariser(0.0, 0.0, np.zeros(0)), np.zeros(0), np.zeros(0))
    with tables.read_checkpoint(path) as (_, read):
        column.restore({name: read(name) for name in column.state()})
    return column


def solve_by_passes(
    client: Client, task: PassProblem, files: Sequence[Location], progress: Callable[[int], None] = lambda done: None
) -> None:
    """Solve all columns of a problem, each into its file, in a folder of this problem; a killed run resumes.

    `progress` is called with the number of columns that are done. Raises `SparseocoError` if a task failed.
    """
    folder = files[0].parent
    # A run of its own: a task of a client that was killed may still be at work in the folder of another.
    work = folder / f"passes-{uuid.uuid4().hex}"
    state, pool, done = folder / "state.npz", TaskPool(client, FAILURE), 0
    while done < len(files):
        done = pool.call(_continue, task, work, state, files)
        progress(done)
    remove_folder(work)
    remove_file(state)


def _continue(task: PassProblem, work: Location, checkpoint: Location, files: Sequence[Location]) -> int:
    """Continue with all columns for `SOLVER_SECONDS`; returns the number of those done: all, once they are written."""
    if all(tables.is_complete(path) for path in files):
        return len(files)
    with worker_client() as client:
        passes = ClusterPasses(client, task.source, work, task.span, leaf_nonzeros=LEAF_NONZEROS)
        passes.factors, ranges = (None if own is None else own() for own in (task.factors, task.ranges))
        memory = int(worker_shape(client).memory * SOLVER_SHARE)
        state: dict[str, NDArray[Any]] | None = None
        # From the start if the checkpoint is missing or corrupt.
        with suppress(StorageError), tables.read_checkpoint(checkpoint) as (description, read):
            state = {name: read(name) for name in description["names"]}
        options: dict[str, Any] = {"tol": task.tol, "max_passes": task.max_passes, "saved": state, "ranges": ranges}
        solver = QuasiNewton(passes, task.problem, memory=memory, **options)
        finished = solve(solver, check_worker_running, SOLVER_SECONDS)
    if not finished:
        state = solver.state()
        tables.write_checkpoint(checkpoint, {"names": list(state)}, state.items())
        return sum(column.done for column in solver.columns)
    for column, path in zip(solver.columns, files, strict=True):
        write_column(column, path)
    return len(files)


# ----------------------------------------------------------------------------------------------------------------------
# λ_max: the least penalty per row at which all weights are 0, as in glmnet and skglm.
#
# λ_max = max_{j,k} |Σ_i s_i·ℓ'_k(b_k, y_i)·x_{ij}|/n at w = 0, over features j and outputs k, with sample weights s_i;
# for groups the maximum of the norms over k, and over the features of a group. With an intercept, b minimises the loss
# at w = 0 (for losses with a kink b = 0, and for numbers b is their mean, a minimum of the squared loss alone);
# else b = 0.
#
# One task reads the rows twice: first their labels, for b, then their values.


TINY = 1e-300


def lambda_max(
    client: Client,
    source: RowsSource,
    loss: str,
    *,
    grouped: bool,
    intercept: bool,
    groups: FeatureGroups | None = None,
) -> float:
    """λ_max of the rows of a store, computed on a worker. Raises `SparseocoError` if the task fails."""
    pool, flags = TaskPool(client, "λ_max could not be computed"), {"grouped": grouped, "intercept": intercept}
    return pool.call(_lambda_max_task, source, loss, flags, groups)


def _lambda_max_task(source: RowsSource, loss: str, flags: dict[str, Any], named: FeatureGroups | None) -> float:
    store = open_store(source.store)
    flags = flags | {"groups": None if named is None else named.read(store)}
    outputs = len(store.classes) if store.is_multilabel or len(store.classes) > 2 else 1
    rows = open_rows(source)
    return lambda_max_of(rows, store.n_features, find_loss(loss), outputs, check=check_worker_running, **flags)


def lambda_max_of(
    source: RowSource,
    n_features: int,
    loss: Loss,
    outputs: int,
    *,
    grouped: bool = False,
    intercept: bool = False,
    groups: NDArray[np.int64] | None = None,
    check: Callable[[], None] = lambda: None,
) -> float:
    """λ_max of rows with `outputs` columns of weights: 1 for two classes or numbers, else one per class.

    `grouped` by the features of `groups` (n_features,) and classes, by default the classes of each feature.

    `check` is called every few thousand rows.
    """
    if loss.joint and outputs == 1:
        loss = find_loss(loss.joint)
    intercepts = _best_intercepts(source, loss, outputs) if intercept else np.zeros(outputs)
    gradient = np.zeros((n_features, outputs))
    for rows in SpanRows(source).chunks(0, source.n_rows):
        check()
        slopes = _slopes(rows, loss, intercepts) * row_weights(rows)[:, None]
        ACCUMULATE(rows.indptr, rows.indices, rows.values, slopes, gradient)
    largest = np.abs(gradient)
    if grouped:
        squares = (gradient**2).sum(axis=1)
        largest = np.sqrt(squares if groups is None else np.bincount(groups, squares))
    return float(largest.max(initial=0.0)) / max(source.n_rows, 1)


def _slopes(rows: RowBatch, loss: Loss, intercepts: Floats) -> Floats:
    """(rows, outputs): slopes of rows at w = 0 and these intercepts."""
    outputs = intercepts.size
    if loss.regression:
        out: Floats = np.empty((len(rows.labels), 1))
        labels, none = np.asarray(rows.labels, np.float64), np.array([-1], np.int64)
        z = np.full_like(out, intercepts[0])
        loss_kernels(loss).respond(z, labels, np.ones(labels.size), none, out, np.zeros(1))
        return out
    if loss.joint:
        table = np.zeros((outputs, outputs))
        for label, slopes in enumerate(table):
            loss.value(intercepts, slopes, 0, outputs, label)
        return np.asarray(table[np.asarray(rows.labels, np.int64)])
    assert loss.slope is not None
    up, down = (np.array([loss.slope(float(b), y) for b in intercepts]) for y in (1.0, -1.0))
    return np.where(_positive(rows.labels, outputs), up, down)


def _positive(labels: NDArray[Any], outputs: int) -> NDArray[np.bool_]:
    """(rows, outputs): whether y = +1."""
    if labels.ndim == 2:
        return np.asarray(labels > 0)
    return np.asarray(labels[:, None] == (np.ones(1) if outputs == 1 else np.arange(outputs)))


def _best_intercepts(source: RowSource, loss: Loss, outputs: int) -> Floats:
    """(outputs,): from the weighted share of rows with y = +1, or the mean of numbers; 0 for losses with a kink."""
    total, sums = 0.0, np.zeros(outputs)
    for rows in SpanRows(source).chunks(0, source.n_rows):
        values = rows.labels[:, None] if loss.regression else _positive(rows.labels, outputs)
        weights = row_weights(rows)
        sums += (values * weights[:, None]).sum(axis=0)
        total += float(weights.sum())
    means = sums / max(total, TINY)
    shares = np.clip(means, TINY, 1.0 - 2.0**-53)  # the intercept of one class is not infinite
    best: dict[str, Floats] = {
        "squared": means,
        "softmax": np.log(shares),
        "logistic": np.log(shares) - np.log1p(-shares),
        "squared_hinge": 2.0 * means - 1.0,
    }
    return best.get(loss.name, np.zeros(outputs))


# ----------------------------------------------------------------------------------------------------------------------
# The offline optimum of a store, on the cluster, and a model per α.
#
# In a small store (`NEWTON_NONZEROS`) every column (an α and a class) is one task that reads all rows and takes Newton
# steps, with the bits of `sparseoco.offline_optimum`. In a larger one all columns are solved together by passes of the
# cluster (`solve_by_passes`). Vectors stay on workers; the client gets numbers.


OPTIMUM = pa.schema(
    [
        ("alpha", pa.float64()),
        ("class", pa.string()),  # the class with y = +1; "value" for regression
        ("objective", pa.float64()),
        ("dual", pa.float64()),  # a lower bound of the least objective
        ("gap", pa.float64()),
        ("relative_gap", pa.float64()),  # of the objective at 0
        ("converged", pa.bool_()),
        ("passes", pa.int32()),
        ("nonzeros", pa.int64()),
    ]
)


OPTIMUM_FOLDER = commit.FolderKind("an optimum", ("optimum.json",), ("optimum.parquet", "alpha-*"))


def run_optimum(session: Session, out: Location, options: OptimumOptions) -> None:
    """Find the optimum for every α.

    Parameters
    ----------
    session : Session
    out : Location
        Output folder: ``optimum.parquet``, a model folder per α, such as ``alpha-1.0``, and, written last,
        ``optimum.json``. A finished run is not repeated, a killed one resumes.
    options : OptimumOptions

    Raises
    ------
    InputError
        Invalid options.
    SparseocoError
        A pass or task failed.
    """
    client, store = session
    small = store.manifest.nonzeros <= NEWTON_NONZEROS
    if not small and options.intercept:
        raise unsupported(
            f"With an intercept the optimum is found in one task, for at most {NEWTON_NONZEROS:,} nonzeros: keep "
            "fewer documents or features at ingest, or leave it out."
        )
    problem = OptimumProblem.of(options, store.n_classes)
    description = options.model_dump(mode="json") | {"store": store.manifest.digest, "sparseoco": __version__}
    digest = digest_value(description)
    done = out / "optimum.json"
    with suppress(DamagedError):  # missing or corrupt: it is found again
        if read_json(done).get("digest") == digest:
            return
    remove_file(done)
    work = out / ".columns"
    files = [(work / digest / f"column-{i}.npz").resolve() for i in range(problem.size)]
    reference = store_reference(store)
    report = progress_of("optimum", len(files))
    if small:  # a killed run repeats only unfinished columns
        calls: dict[str, Call] = {str(i): (_solve, reference, options, i, path) for i, path in enumerate(files)}
        for error in TaskPool(client, FAILURE).run_all(calls, report).values():
            raise error
    else:
        source = RowsSource(reference, options.weighting)
        solve_by_passes(client, PassProblem(source, WHOLE, problem, options.tol, options.max_passes), files, report)
    models, outputs = (reference, options, out.resolve()), len(problem.positive)
    solved = [(*models, i, files[i * outputs : (i + 1) * outputs]) for i in range(len(problem.alphas))]
    rows = [row for own in TaskPool(client, FAILURE).map(_write_model, solved) for row in own]
    tables.write_result_table(out / "optimum.parquet", rows, OPTIMUM)
    commit_json(done, description | {"digest": digest})
    remove_folder(work)


def _solve(store: StoreReference, options: OptimumOptions, number: int, path: Location) -> None:
    """Solve one column, on a worker, unless its result is there."""
    if tables.is_complete(path):
        return
    opened = open_store(store)
    every = OptimumProblem.of(options, opened.n_classes)
    alpha, positive = divmod(number, len(every.positive))
    problem = every._replace(alphas=(every.alphas[alpha],), positive=(every.positive[positive],))
    indptr, indices, counts, labels, own = worker_corpus(opened, options.weighting).gather(np.arange(opened.n_rows))
    matrix = scipy.sparse.csr_matrix((counts, indices, indptr), shape=(opened.n_rows, opened.n_features), copy=False)
    weights = None if own is None else np.asarray(own, np.float64)
    passes = full_passes.local_passes(matrix, labels, weights, fit_intercept=options.intercept)
    solver = Newton(passes, problem, tol=options.tol, max_passes=options.max_passes)
    solve(solver, check_worker_running)
    write_column(solver.columns[0], path)


def _write_model(
    store: StoreReference, options: OptimumOptions, out: Location, number: int, files: Sequence[Location]
) -> list[tables.Row]:
    """Write the model of one α, on a worker; returns its rows of the table."""
    opened = open_store(store)
    names, alpha = opened.classes or ["value"], options.alphas[number]
    positive = OptimumProblem.of(options, opened.n_classes).positive
    columns = [read_column(path) for path in files]
    rows: list[tables.Row] = [
        {
            "alpha": alpha,
            "class": names[label],
            "objective": column.objective,
            "dual": column.dual,
            "gap": column.gap,
            "relative_gap": column.gap / column.at_zero if column.at_zero > 0.0 else 0.0,
            "converged": column.converged,
            "passes": column.passes,
            "nonzeros": int(np.count_nonzero(column.best)),
        }
        for column, label in zip(columns, positive, strict=True)
    ]
    parameters = {"alpha": alpha} | ({"l1_ratio": options.l1_ratio} if options.penalty == "elastic_net" else {})
    description = {
        "algorithm": "offline-optimum",
        "parameters": parameters | ({} if options.box is None else {"box": options.box}),
        "loss": options.loss,
        "penalty": options.penalty,
        "weighting": options.weighting.model_dump(mode="json"),
        "objective": sum(column.objective for column in columns),
        "gap": sum(column.gap for column in columns),
    }
    weights = np.stack([column.best for column in columns], axis=1)
    intercepts = np.array([column.best_intercept for column in columns]) if options.intercept else None
    write_model(out / f"alpha-{alpha!r}", weights, opened, description, [], intercepts=intercepts)
    return rows
