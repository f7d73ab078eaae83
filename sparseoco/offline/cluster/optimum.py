"""The offline optimum of a store, on the cluster, and a model per α.

In a small store (`NEWTON_NONZEROS`) every column (an α and a class) is one task that reads all rows and takes Newton
steps, with the bits of `sparseoco.offline_optimum`. In a larger one all columns are solved together by passes of the
cluster (`solving`). Vectors stay on workers; the client gets numbers.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from distributed import Client
from scipy.sparse import csr_matrix

from sparseoco import __version__
from sparseoco.core.errors import DamagedError, InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.execution.pool import Call, TaskPool
from sparseoco.offline.cluster.pass_tasks import RowsSource
from sparseoco.offline.cluster.passes import NEWTON_NONZEROS
from sparseoco.offline.cluster.solving import (
    FAILURE,
    SOLVED,
    PassProblem,
    SolvedColumn,
    solve_by_passes,
    write_column,
)
from sparseoco.offline.optimum import Newton, Problem, local_passes
from sparseoco.offline.options import OptimumOptions as OptimumOptions
from sparseoco.offline.passes import Span
from sparseoco.storage.checkpoints import is_complete
from sparseoco.storage.commit import commit_json, digest_value, read_json, remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.storage.metrics import Row, write_result_table
from sparseoco.storage.outputs import FolderKind
from sparseoco.store.references import StoreReference, open_store, store_reference
from sparseoco.store.shards import Store
from sparseoco.store.worker import check_worker_running, worker_corpus
from sparseoco.training.models.files import write_model

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


OPTIMUM_FOLDER = FolderKind("an optimum", ("optimum.json",), ("optimum.parquet", "passes.parquet", "alpha-*"))


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
    with suppress(DamagedError):  # missing or corrupt: it is found again
        if read_json(done).get("digest") == digest:
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
    described = store_reference(store), options.model_dump(mode="json")
    calls: dict[str, Call] = {str(i): (_solve, *described, i, path) for i, path in enumerate(files)}
    for error in TaskPool(client, FAILURE).run_all(calls, lambda done: progress("optimum", done, len(files))).values():
        raise error


def _solve(store: StoreReference, options: dict[str, Any], number: int, path: str) -> None:
    """Solve one column, on a worker, unless its result is there."""
    if is_complete(location(path)):
        return
    opened, chosen = open_store(store), OptimumOptions.model_validate(options)
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
    write_column(newton.columns[0], path)


def _by_passes(
    client: Client, store: Store, files: Sequence[str], options: OptimumOptions, progress: ProgressCallback
) -> None:
    """All columns together."""
    source = RowsSource(store_reference(store), options.weighting)
    problem = options.problem(store.classes)
    task = PassProblem(source, Span(), problem, options.tol, options.max_passes)
    solve_by_passes(client, task, files, lambda done: progress("optimum", done, SOLVED))


def model_folder(out: Location, alpha: float) -> Location:
    """The folder of the model for an α."""
    return out / f"alpha-{alpha!r}"


def _write(
    client: Client, store: Store, out: Location, files: Sequence[str], problem: Problem, options: OptimumOptions
) -> None:
    """Write the tables and, in a task per α, the models."""
    outputs = len(problem.positive)
    described = store_reference(store), options.model_dump(mode="json"), str(out.resolve())
    calls = [(*described, i, list(files[i * outputs : (i + 1) * outputs])) for i in range(len(problem.alphas))]
    rows, passes = [], []
    for own, history in TaskPool(client, FAILURE).map(_write_model, calls):
        rows += own
        passes += history
    write_result_table(out / "optimum.parquet", rows, OPTIMUM)
    write_result_table(out / "passes.parquet", passes, PASSES)


def _write_model(
    store: StoreReference, options: dict[str, Any], out: str, number: int, files: list[str]
) -> tuple[list[Row], list[Row]]:
    """Write the model of one α, on a worker; returns its rows of both tables."""
    opened, chosen = open_store(store), OptimumOptions.model_validate(options)
    names, alpha, positive = opened.classes or ["value"], chosen.alphas[number], chosen.problem(opened.classes).positive
    columns = [SolvedColumn.read(path) for path in files]
    rows: list[Row] = []
    passes: list[Row] = []
    for column, label in zip(columns, positive, strict=True):
        key = {"alpha": alpha, "class": names[label]}
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
    weights, best = np.stack([c.best for c in columns], axis=1), np.array([c.intercept for c in columns])
    intercepts = best if chosen.intercept else None
    write_model(model_folder(location(out), alpha), weights, opened, description, [], intercepts=intercepts)
    return rows, passes
