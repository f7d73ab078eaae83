"""The offline optimum of a store, on the cluster, and a model per α.

In a small store (`NEWTON_NONZEROS`) every column (an α and a class) is one task that reads all rows and takes Newton
steps, with the bits of `sparseoco.offline_optimum`. In a larger one all columns are solved together by passes of the
cluster, started by tasks on one worker: each continues from the saved state of the solver for `SOLVER_SECONDS`. Vectors
stay on workers; the client gets numbers.
"""

import math
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client, worker_client
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS, ClusterPasses
from sparseoco.offline.optimum import Newton, Problem, Solver, local_passes
from sparseoco.offline.optimum.certificate import ColumnProgress
from sparseoco.offline.optimum.problem import Regulariser
from sparseoco.offline.options import OptimumOptions as OptimumOptions
from sparseoco.storage.checkpoints import is_complete, read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metrics import Row, write_result_table
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running, worker_corpus
from sparseoco.training.model import write_model

FAILURE = "The optimum was not found"
SOLVER_SECONDS = 30.0  # of work in one task of the solver, which is lost if its worker is killed
SOLVER_SHARE = 0.25  # of a task's memory for the solver's vectors, beside those of a run of a pass
LEAF_NONZEROS = 1 << 18  # of a pass of the solver
SOLVED = 1000  # the progress of a solver that has finished

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
PASSES = pa.schema(
    [
        ("alpha", pa.float64()),
        ("class", pa.string()),
        ("pass", pa.int32()),
        ("objective", pa.float64()),  # the least so far
        ("dual", pa.float64()),  # the greatest so far
        ("nonzeros", pa.int64()),  # of the best point so far
    ]
)


def run_optimum(
    client: Client, store: Store, out: Location, options: OptimumOptions, progress: ProgressCallback
) -> None:
    """Find the optimum for every α.

    Parameters
    ----------
    client : distributed.Client
    store : Store
    out : Location
        Output folder: ``optimum.parquet``, ``passes.parquet``, a model folder per α (see `model_folder`) and, written
        last, ``optimum.json``. A finished run is not repeated, a killed one resumes.
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
    if done.exists() and read_json(done).get("digest") == digest:
        return
    remove_file(done)
    work = out / ".columns"
    solve = _by_tasks if small else _by_passes
    files = [str((work / digest / f"{i}.npz").resolve()) for i in range(len(problem.columns))]
    solve(client, store, files, options, progress)
    _write(client, store, out, files, problem, options)
    commit_json(done, description | {"digest": digest})
    remove_folder(work)


def _by_tasks(
    client: Client, store: Store, files: Sequence[str], options: OptimumOptions, progress: ProgressCallback
) -> None:
    """One task per column, each with a result file: a killed run repeats only unfinished columns."""
    described = str(store.folder.resolve()), options.model_dump(mode="json")
    calls: dict[str, Call] = {str(i): (_solve, *described, i, path) for i, path in enumerate(files)}
    for error in TaskPool(client, FAILURE).run_all(calls, lambda done: progress("optimum", done, len(files))).values():
        raise error


def _solve(store: str, options: dict[str, Any], number: int, path: str) -> None:
    """Solve one column, on a worker, unless its result is there."""
    if is_complete(location(path)):
        return
    opened, chosen = Store.open(store), OptimumOptions.model_validate(options)
    every = chosen.problem(opened.classes)
    alpha, positive = divmod(number, len(every.positive))
    problem = every._replace(alphas=(every.alphas[alpha],), positive=(every.positive[positive],))
    indptr, indices, counts, labels, own = worker_corpus(opened, chosen.weighting).gather(np.arange(opened.n_rows))
    matrix = csr_matrix((counts, indices, indptr), shape=(opened.n_rows, opened.n_features), copy=False)
    weights = None if own is None else np.asarray(own, np.float64)
    passes = local_passes(matrix, labels, weights, fit_intercept=chosen.intercept)
    newton = Newton(passes, passes.columns(), problem, tol=chosen.tol, max_passes=chosen.max_passes)
    while newton.active:
        check_worker_running()
        newton.step()
    _write_column(newton.columns[0], path)


def _write_column(found: ColumnProgress, path: str) -> None:
    """The result of one column."""
    sums = np.array(
        [found.at_zero, found.objective, found.dual, found.passes, found.converged, found.best_intercept], np.float64
    )
    write_checkpoint(location(path), {}, [("sums", sums), ("history", found.history), ("best", found.best)])


def _read_column(path: str, positive: int, h: Regulariser) -> ColumnProgress:
    """What `_write_column` wrote."""
    found = ColumnProgress(positive, h, trial=np.zeros(0), best=np.zeros(0), done=True)
    with read_checkpoint(location(path)) as (_, read):
        found.at_zero, found.objective, found.dual, passes, converged, found.best_intercept = map(float, read("sums"))
        found.passes, found.converged = int(passes), bool(converged)
        found.history, found.best = read("history"), read("best")
    return found


def _by_passes(
    client: Client, store: Store, files: Sequence[str], options: OptimumOptions, progress: ProgressCallback
) -> None:
    """All columns together: tasks, one after another, that each continue from the last one's state."""
    folder = location(files[0]).parent
    # A run of its own: a task of a client that was killed may still be at work in the folder of another.
    work = folder / f"passes-{uuid.uuid4().hex}"
    described = str(store.folder.resolve()), options.model_dump(mode="json"), str(work), str(folder / "state.npz")
    pool, done = TaskPool(client, FAILURE), 0
    while done < SOLVED:
        done = pool.call(_continue, *described, list(files))
        progress("optimum", done, SOLVED)
    remove_folder(work)


def _continue(store: str, options: dict[str, Any], work: str, checkpoint: str, files: list[str]) -> int:
    """Continue with all columns for `SOLVER_SECONDS`, on a worker, which starts the tasks of the passes.

    Returns the progress, `SOLVED` once all columns are written.
    """
    if all(is_complete(location(path)) for path in files):
        return SOLVED
    opened, chosen = Store.open(store), OptimumOptions.model_validate(options)
    with worker_client() as client:
        passes = ClusterPasses(client, opened, location(work), weighting=chosen.weighting, leaf_nonzeros=LEAF_NONZEROS)
        memory = int(worker_shape(client)[1] * SOLVER_SHARE)
        solver = Solver(
            passes, chosen.problem(opened.classes), tol=chosen.tol, max_passes=chosen.max_passes, memory=memory
        )
        state = _read_state(location(checkpoint))
        if state is not None:
            solver.restore(state)
        end = time.monotonic() + SOLVER_SECONDS
        while solver.active:
            check_worker_running()
            solver.step()
            if time.monotonic() > end:
                break
    if solver.active:
        state = solver.state()
        write_checkpoint(location(checkpoint), {"names": list(state)}, state.items())
        return min(_fraction_done(solver), SOLVED - 1)
    for column, path in zip(solver.columns, files, strict=True):
        _write_column(column, path)
    return SOLVED


def model_folder(out: Location, alpha: float) -> Location:
    """The folder of the model for an α."""
    return out / f"alpha-{alpha!r}"


def _fraction_done(solver: Solver) -> int:
    """Progress to the requested gap on a logarithmic scale, up to `SOLVED`."""
    shares = []
    for column in solver.columns:
        relative = column.gap / column.at_zero if column.at_zero > 0.0 else 1.0
        shares.append(1.0 if column.done else min(1.0, math.log(max(relative, solver.tol)) / math.log(solver.tol)))
    return round(SOLVED * max(0.0, sum(shares) / len(shares)))


def _write(
    client: Client, store: Store, out: Location, files: Sequence[str], problem: Problem, options: OptimumOptions
) -> None:
    """Write the tables and, in a task per α, the models."""
    outputs = len(problem.positive)
    described = str(store.folder.resolve()), options.model_dump(mode="json"), str(out.resolve())
    calls = [(*described, i, list(files[i * outputs : (i + 1) * outputs])) for i in range(len(problem.alphas))]
    rows, passes = [], []
    for own, history in TaskPool(client, FAILURE).map(_write_model, calls):
        rows += own
        passes += history
    write_result_table(out / "optimum.parquet", rows, OPTIMUM)
    write_result_table(out / "passes.parquet", passes, PASSES)


def _write_model(
    store: str, options: dict[str, Any], out: str, number: int, files: list[str]
) -> tuple[list[Row], list[Row]]:
    """Write the model of one α, on a worker; returns its rows of both tables."""
    opened, chosen = Store.open(store), OptimumOptions.model_validate(options)
    names, alpha, problem = opened.classes or ["value"], chosen.alphas[number], chosen.problem(opened.classes)
    own = problem._replace(alphas=(alpha,)).columns
    columns = [_read_column(path, *column) for path, column in zip(files, own, strict=True)]
    rows: list[Row] = []
    passes: list[Row] = []
    for column in columns:
        key = {"alpha": alpha, "class": names[column.positive]}
        rows.append(
            key
            | {
                "objective": column.objective,
                "dual": column.dual,
                "gap": column.gap,
                "relative_gap": column.gap / column.at_zero if column.at_zero > 0.0 else 0.0,
                "converged": column.converged,
                "passes": column.passes,
                "nonzeros": int(np.count_nonzero(column.best)),
            }
        )
        passes += [
            key | {"pass": i + 1, "objective": float(objective), "dual": float(dual), "nonzeros": int(nonzeros)}
            for i, (objective, dual, nonzeros) in enumerate(column.history)
        ]
    parameters = {"alpha": alpha} | ({"l1_ratio": chosen.l1_ratio} if chosen.penalty == "elastic_net" else {})
    description = {
        "algorithm": "offline-optimum",
        "parameters": parameters | ({} if chosen.box is None else {"box": chosen.box}),
        "loss": chosen.loss,
        "penalty": chosen.penalty,
        "weighting": chosen.weighting.model_dump(mode="json"),
        "objective": sum(column.objective for column in columns),
        "gap": sum(column.gap for column in columns),
    }
    weights, best = np.stack([c.best for c in columns], axis=1), np.array([c.best_intercept for c in columns])
    intercepts = best if chosen.intercept else None
    write_model(model_folder(location(out), alpha), weights, opened, description, [], intercepts=intercepts)
    return rows, passes


def _read_state(path: Location) -> dict[str, NDArray[Any]] | None:
    """The saved state of a run, or None if it is missing or corrupt."""
    with suppress(StorageError), read_checkpoint(path) as (description, read):
        return {name: read(name) for name in description["names"]}
    return None
