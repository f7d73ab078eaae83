"""The optimum, and the least penalty with no weights, on a cluster."""

import math
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy  # loads scipy.sparse when it is used
from distributed import Client, worker_client
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError, StorageError
from sparseoco.core.logs import ProgressCallback
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.kernels.columns import RowBatch
from sparseoco.kernels.full_pass import ACCUMULATE, loss_kernels
from sparseoco.learners.losses import Loss, find_loss
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS, ClusterPasses, RowsSource, open_rows
from sparseoco.offline.optimum import ColumnProgress, Newton, OptimumProblem, Regulariser, Solver, solve
from sparseoco.offline.options import OptimumOptions
from sparseoco.offline.passes import Floats, RowSource, Span, chunks, local_passes, row_weights
from sparseoco.offline.quasi_newton import QuasiNewton
from sparseoco.storage.checkpoints import is_complete, read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location
from sparseoco.storage.locks import FolderKind
from sparseoco.storage.tables import Row, write_result_table
from sparseoco.store.corpus import check_worker_running, worker_corpus
from sparseoco.store.shards import Store, StoreReference, open_store, store_reference
from sparseoco.store.weighting import Weighting
from sparseoco.training.models import write_model

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
SOLVED = 1000  # the progress of a solver that has finished


class PassProblem(NamedTuple):
    """A problem over the rows of a span, and the stopping criteria.

    `factors`, if any, returns those of the passes for a number of features.
    """

    source: RowsSource
    span: Span
    problem: OptimumProblem
    tol: float
    max_passes: int
    factors: Callable[[int], Floats] | None = None


def write_column(column: ColumnProgress, path: Location) -> None:
    """Write the result of one column that is done."""
    write_checkpoint(path, {}, ColumnProgress.state(column).items())


def read_column(path: Location) -> ColumnProgress:
    """What `write_column` wrote, without the problem of the column. Raises `StorageError`."""
    column = ColumnProgress(0, Regulariser(0.0, 0.0, math.inf), np.zeros(0), np.zeros(0))
    with read_checkpoint(path) as (_, read):
        column.restore({name: read(name) for name in column.state()})
    return column


def solve_by_passes(
    client: Client, task: PassProblem, files: Sequence[Location], progress: Callable[[int], None] = lambda done: None
) -> None:
    """Solve all columns of a problem, each into its file, in a folder of this problem; a killed run resumes.

    `progress` is called with values up to `SOLVED`. Raises `SparseocoError` if a task failed.
    """
    folder = files[0].parent
    # A run of its own: a task of a client that was killed may still be at work in the folder of another.
    work = folder / f"passes-{uuid.uuid4().hex}"
    state, pool, done = folder / "state.npz", TaskPool(client, FAILURE), 0
    while done < SOLVED:
        done = pool.call(_continue, task, work, state, files)
        progress(done)
    remove_folder(work)
    remove_file(state)


def _continue(task: PassProblem, work: Location, checkpoint: Location, files: Sequence[Location]) -> int:
    """Continue with all columns for `SOLVER_SECONDS`; returns the progress, `SOLVED` once all columns are written."""
    if all(is_complete(path) for path in files):
        return SOLVED
    with worker_client() as client:
        passes = ClusterPasses(client, task.source, work, task.span, leaf_nonzeros=LEAF_NONZEROS)
        if task.factors is not None:
            passes.factors = task.factors(passes.shape.n_features)
        memory = int(worker_shape(client).memory * SOLVER_SHARE)
        state = _read_state(checkpoint)
        solver = QuasiNewton(
            passes, task.problem, tol=task.tol, max_passes=task.max_passes, memory=memory, state=state
        )
        finished = solve(solver, check_worker_running, SOLVER_SECONDS)
    if not finished:
        state = solver.state()
        write_checkpoint(checkpoint, {"names": list(state)}, state.items())
        return min(_fraction_done(solver), SOLVED - 1)
    for column, path in zip(solver.columns, files, strict=True):
        write_column(column, path)
    return SOLVED


def _read_state(path: Location) -> dict[str, NDArray[Any]] | None:
    """The saved state of a run, or None if it is missing or corrupt."""
    with suppress(StorageError), read_checkpoint(path) as (description, read):
        return {name: read(name) for name in description["names"]}
    return None


def _fraction_done(solver: Solver[Any]) -> int:
    """Progress to the requested gap on a logarithmic scale, up to `SOLVED`."""
    shares = []
    for column in solver.columns:
        relative = column.gap / column.at_zero if column.at_zero > 0.0 else 1.0
        shares.append(1.0 if column.done else min(1.0, math.log(max(relative, solver.tol)) / math.log(solver.tol)))
    return round(SOLVED * max(0.0, sum(shares) / len(shares)))


# ----------------------------------------------------------------------------------------------------------------------
# λ_max: the least penalty per row at which all weights are 0, as in glmnet and skglm.
#
# λ_max = max_{j,k} |Σ_i s_i·ℓ'_k(b_k, y_i)·x_{ij}|/n at w = 0, over features j and outputs k, with sample weights s_i;
# for groups the maximum of the norms over k. With an intercept, b minimises the loss at w = 0 (for losses with a kink
# b = 0, and for numbers b is their mean, which is a minimum of the squared loss alone); else b = 0.
#
# One task reads the rows twice: first their labels, for b, then their values.


TINY = 1e-300


def lambda_max(
    client: Client,
    store: Store,
    weighting: Weighting,
    loss: str,
    class_weights: tuple[float, ...] | None = None,
    *,
    grouped: bool = False,
    intercept: bool = False,
) -> float:
    """λ_max of a store, computed on a worker. Raises `SparseocoError` if the task fails."""
    source = RowsSource(store_reference(store), weighting, class_weights)
    found: float = TaskPool(client, "λ_max could not be computed").call(
        _lambda_max_task, source, loss, {"grouped": grouped, "intercept": intercept}
    )
    return found


def _lambda_max_task(source: RowsSource, loss: str, flags: dict[str, bool]) -> float:
    store = open_store(source.store)
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
    check: Callable[[], None] = lambda: None,
) -> float:
    """λ_max of rows with `outputs` columns of weights: 1 for two classes or numbers, else one per class.

    `check` is called every few thousand rows.
    """
    if loss.joint and outputs == 1:
        loss = find_loss(loss.joint)
    intercepts = _best_intercepts(source, loss, outputs) if intercept else np.zeros(outputs)
    gradient = np.zeros((n_features, outputs))
    for rows in chunks(source, Span(), 0, source.n_rows):
        check()
        slopes = _slopes(rows, loss, intercepts) * row_weights(rows)[:, None]
        ACCUMULATE(rows.indptr, rows.indices, rows.values, slopes, gradient)
    largest = np.sqrt((gradient**2).sum(axis=1)) if grouped else np.abs(gradient)
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
    for rows in chunks(source, Span(), 0, source.n_rows):
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


OPTIMUM_FOLDER = FolderKind("an optimum", ("optimum.json",), ("optimum.parquet", "alpha-*"))


def run_optimum(
    client: Client, store: Store, out: Location, options: OptimumOptions, progress: ProgressCallback
) -> None:
    """Find the optimum for every α.

    Parameters
    ----------
    client : distributed.Client
    store : Store
    out : Location
        Output folder: ``optimum.parquet``, a model folder per α (see `model_folder`) and, written last,
        ``optimum.json``. A finished run is not repeated, a killed one resumes.
    options : OptimumOptions
    progress : callable
        Called with (step, done, total).

    Raises
    ------
    InputError
        Invalid options.
    SparseocoError
        A pass or task failed.
    """
    small = store.manifest.nonzeros <= NEWTON_NONZEROS
    if not small and options.intercept:
        raise InputError(
            f"With an intercept the optimum is found in one task, for at most {NEWTON_NONZEROS:,} nonzeros: keep "
            "fewer documents or features at ingest, or leave it out.",
            code="unsupported-combination",
        )
    problem = options.problem(store.classes)
    description = options.model_dump(mode="json") | {"store": store.manifest.digest, "sparseoco": __version__}
    digest = digest_value(description)
    done = out / "optimum.json"
    with suppress(DamagedError):  # missing or corrupt: it is found again
        if read_json(done).get("digest") == digest:
            return
    remove_file(done)
    work = out / ".columns"
    files = [(work / digest / f"column-{i}.npz").resolve() for i in range(len(problem.columns))]
    if small:
        _by_tasks(client, store, files, options, progress)
    else:
        source = RowsSource(store_reference(store), options.weighting)
        task = PassProblem(source, Span(), problem, options.tol, options.max_passes)
        solve_by_passes(client, task, files, lambda done: progress("optimum", done, SOLVED))
    _write(client, store, out, files, problem, options)
    commit_json(done, description | {"digest": digest})
    remove_folder(work)


def _by_tasks(
    client: Client, store: Store, files: Sequence[Location], options: OptimumOptions, progress: ProgressCallback
) -> None:
    """One task per column, each with a result file: a killed run repeats only unfinished columns."""
    reference = store_reference(store)
    calls: dict[str, Call] = {str(i): (_solve, reference, options, i, path) for i, path in enumerate(files)}
    for error in TaskPool(client, FAILURE).run_all(calls, lambda done: progress("optimum", done, len(files))).values():
        raise error


def _solve(store: StoreReference, options: OptimumOptions, number: int, path: Location) -> None:
    """Solve one column, on a worker, unless its result is there."""
    if is_complete(path):
        return
    opened = open_store(store)
    every = options.problem(opened.classes)
    alpha, positive = divmod(number, len(every.positive))
    problem = every._replace(alphas=(every.alphas[alpha],), positive=(every.positive[positive],))
    indptr, indices, counts, labels, own = worker_corpus(opened, options.weighting).gather(np.arange(opened.n_rows))
    matrix = scipy.sparse.csr_matrix((counts, indices, indptr), shape=(opened.n_rows, opened.n_features), copy=False)
    weights = None if own is None else np.asarray(own, np.float64)
    passes = local_passes(matrix, labels, weights, fit_intercept=options.intercept)
    solver = Newton(passes, problem, tol=options.tol, max_passes=options.max_passes)
    solve(solver, check_worker_running)
    write_column(solver.columns[0], path)


def model_folder(out: Location, alpha: float) -> Location:
    """The folder of the model for an α."""
    return out / f"alpha-{alpha!r}"


def _write(
    client: Client,
    store: Store,
    out: Location,
    files: Sequence[Location],
    problem: OptimumProblem,
    options: OptimumOptions,
) -> None:
    """Write the table and, in a task per α, the models."""
    outputs = len(problem.positive)
    described = store_reference(store), options, out.resolve()
    calls = [(*described, i, files[i * outputs : (i + 1) * outputs]) for i in range(len(problem.alphas))]
    rows = [row for own in TaskPool(client, FAILURE).map(_write_model, calls) for row in own]
    write_result_table(out / "optimum.parquet", rows, OPTIMUM)


def _write_model(
    store: StoreReference, options: OptimumOptions, out: Location, number: int, files: Sequence[Location]
) -> list[Row]:
    """Write the model of one α, on a worker; returns its rows of the table."""
    opened = open_store(store)
    names, alpha = opened.classes or ["value"], options.alphas[number]
    positive = options.problem(opened.classes).positive
    columns = [read_column(path) for path in files]
    rows: list[Row] = [
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
    write_model(model_folder(out, alpha), weights, opened, description, [], intercepts=intercepts)
    return rows
