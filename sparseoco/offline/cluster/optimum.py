"""The offline optimum of a store, on the cluster, and a model per α.

In a small store (`NEWTON_NONZEROS`) every column (an α and a class) is one task that reads all rows and takes Newton
steps, with the bits of `sparseoco.offline_optimum`. In a larger one all columns are solved together by passes of the
cluster, and the solver's state is saved to disk.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.errors import InputError, StorageError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS, ClusterPasses
from sparseoco.offline.optimum import Newton, Problem, Solver, local_passes
from sparseoco.offline.optimum.certificate import ColumnProgress
from sparseoco.offline.optimum.problem import Regulariser
from sparseoco.offline.options import OptimumOptions as OptimumOptions
from sparseoco.storage.checkpoints import is_complete, read_checkpoint, write_checkpoint
from sparseoco.storage.commit import commit_json, digest_value, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metrics import write_result_table
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running, worker_corpus
from sparseoco.training.model import write_model

CHECKPOINT_SECONDS = 20.0  # of work that is lost at most if a run is killed

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
    if small:
        work = out / ".columns"
        columns: Sequence[ColumnProgress] = _by_tasks(client, problem, store, work / digest, options, progress)
    else:
        work = out / ".passes"
        columns = _by_passes(client, problem, store, work, digest, options, progress)
    _write(columns, problem, store, out, options)
    commit_json(done, description | {"digest": digest})
    remove_folder(work)


def _by_tasks(
    client: Client,
    problem: Problem,
    store: Store,
    folder: Location,
    options: OptimumOptions,
    progress: ProgressCallback,
) -> list[ColumnProgress]:
    """One task per column, each with a result file in `folder`: a killed run repeats only unfinished columns."""
    files = [folder / f"{i}.npz" for i in range(len(problem.columns))]
    described = str(store.folder.resolve()), options.model_dump(mode="json")
    calls: dict[str, Call] = {
        str(i): (_solve, *described, i, str(path.resolve())) for i, path in enumerate(files) if not is_complete(path)
    }
    found = len(files) - len(calls)
    pool = TaskPool(client, "The optimum was not found")
    for error in pool.run_all(calls, lambda done: progress("optimum", found + done, len(files))).values():
        raise error
    return [_read_column(path, *column) for path, column in zip(files, problem.columns, strict=True)]


def _solve(store: str, options: dict[str, Any], number: int, path: str) -> None:
    """Solve one column, on a worker."""
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
    (found,) = newton.columns
    sums = np.array(
        [found.at_zero, found.objective, found.dual, found.passes, found.converged, found.best_intercept], np.float64
    )
    write_checkpoint(location(path), {}, [("sums", sums), ("history", found.history), ("best", found.best)])


def _read_column(path: Location, positive: int, h: Regulariser) -> ColumnProgress:
    """The result of `_solve`."""
    found = ColumnProgress(positive, h, trial=np.zeros(0), best=np.zeros(0), done=True)
    with read_checkpoint(path) as (_, read):
        found.at_zero, found.objective, found.dual, passes, converged, found.best_intercept = map(float, read("sums"))
        found.passes, found.converged = int(passes), bool(converged)
        found.history, found.best = read("history"), read("best")
    return found


def _by_passes(
    client: Client,
    problem: Problem,
    store: Store,
    work: Location,
    digest: str,
    options: OptimumOptions,
    progress: ProgressCallback,
) -> Sequence[ColumnProgress]:
    """All columns together, by passes with files in `work`; a killed run resumes from the saved state."""
    checkpoint = work / "state.npz"
    passes = ClusterPasses(client, store, work, weighting=options.weighting)
    solver = Solver(passes, problem, tol=options.tol, max_passes=options.max_passes)
    state = _read_state(checkpoint, digest)
    if state is not None:
        solver.restore(state)
    last = time.monotonic()
    while solver.active:
        solver.step()
        progress("optimum", _fraction_done(solver), 1000)
        if time.monotonic() - last > CHECKPOINT_SECONDS:
            state = solver.state()
            write_checkpoint(checkpoint, {"digest": digest, "names": list(state)}, state.items())
            last = time.monotonic()
    return solver.columns


def model_folder(out: Location, alpha: float) -> Location:
    """The folder of the model for an α."""
    return out / f"alpha-{alpha!r}"


def _fraction_done(solver: Solver) -> int:
    """Progress to the requested gap on a logarithmic scale, in thousandths."""
    shares = []
    for column in solver.columns:
        relative = column.gap / column.at_zero if column.at_zero > 0.0 else 1.0
        shares.append(1.0 if column.done else min(1.0, math.log(max(relative, solver.tol)) / math.log(solver.tol)))
    return round(1000 * max(0.0, sum(shares) / len(shares)))


def _write(
    columns: Sequence[ColumnProgress], problem: Problem, store: Store, out: Location, options: OptimumOptions
) -> None:
    """Write the tables and the models."""
    names = store.classes or ["value"]
    rows, passes = [], []
    for column, (alpha, positive) in zip(
        columns, [(alpha, p) for alpha in problem.alphas for p in problem.positive], strict=True
    ):
        key = {"alpha": alpha, "class": names[positive]}
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
    write_result_table(out / "optimum.parquet", rows, OPTIMUM)
    write_result_table(out / "passes.parquet", passes, PASSES)
    outputs = len(problem.positive)
    for i, alpha in enumerate(problem.alphas):
        mine = columns[i * outputs : (i + 1) * outputs]
        parameters = {"alpha": alpha} | ({"l1_ratio": options.l1_ratio} if options.penalty == "elastic_net" else {})
        description = {
            "algorithm": "offline-optimum",
            "parameters": parameters | ({} if options.box is None else {"box": options.box}),
            "loss": options.loss,
            "penalty": options.penalty,
            "weighting": options.weighting.model_dump(mode="json"),
            "objective": sum(column.objective for column in mine),
            "gap": sum(column.gap for column in mine),
        }
        weights, own = np.stack([c.best for c in mine], axis=1), np.array([c.best_intercept for c in mine])
        intercepts = own if options.intercept else None
        write_model(model_folder(out, alpha), weights, store, description, [], intercepts=intercepts)


def _read_state(path: Location, digest: str) -> dict[str, NDArray[Any]] | None:
    """The saved state of this run, or None if it is missing or corrupt."""
    with suppress(StorageError), read_checkpoint(path) as (description, read):
        if description["digest"] == digest:
            return {name: read(name) for name in description["names"]}
    return None
