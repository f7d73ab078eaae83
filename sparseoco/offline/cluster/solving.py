"""Problems that are solved by passes of the cluster, for all their columns together.

The solver is in a task on one worker, which starts the tasks of the passes. Tasks follow each other, and each continues
from the state that the last one saved, so that a killed worker or client loses `SOLVER_SECONDS` of work. The client
waits and gets a number; a column's result is a file.
"""

import math
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, worker_client
from numpy.typing import NDArray

from sparseoco.core.errors import StorageError
from sparseoco.execution.clusters import worker_shape
from sparseoco.execution.pool import TaskPool
from sparseoco.offline.cluster.pass_tasks import RowsSource
from sparseoco.offline.cluster.passes import ClusterPasses
from sparseoco.offline.optimum import Problem, Solver
from sparseoco.offline.optimum.certificate import ColumnProgress
from sparseoco.offline.partial_sums import Floats
from sparseoco.offline.passes import Passes, Span
from sparseoco.storage.checkpoints import is_complete, read_checkpoint, write_checkpoint
from sparseoco.storage.commit import remove_file, remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import open_store
from sparseoco.store.worker import check_worker_running

FAILURE = "The optimum was not found"
SOLVER_SECONDS = 30.0  # of work in one task of the solver
SOLVER_SHARE = 0.25  # of a task's memory for the solver's vectors, beside those of a run of a pass
LEAF_NONZEROS = 1 << 18  # of a pass of the solver
SOLVED = 1000  # the progress of a solver that has finished


class PassProblem(NamedTuple):
    """A problem over the rows of a span, and the stopping criteria.

    `transform`, if any, is applied to the passes that the solver makes.
    """

    source: RowsSource
    span: Span
    problem: Problem
    tol: float
    max_passes: int
    transform: Callable[[Passes], Passes] | None = None


class SolvedColumn(NamedTuple):
    """The result of one column; fields as in `ColumnProgress`, `best` (features,)."""

    at_zero: float
    objective: float
    dual: float
    passes: int
    converged: bool
    intercept: float
    history: Floats
    best: Floats

    @property
    def gap(self) -> float:
        """See `ColumnProgress.gap`."""
        return max(0.0, self.objective - self.dual)

    @classmethod
    def read(cls, path: str) -> "SolvedColumn":
        """What `write_column` wrote. Raises `StorageError`."""
        with read_checkpoint(location(path)) as (_, read):
            at_zero, objective, dual, passes, converged, intercept = map(float, read("sums"))
            found = at_zero, objective, dual, int(passes), bool(converged), intercept
            return cls(*found, read("history"), read("best"))


def write_column(found: ColumnProgress, path: str) -> None:
    """Write the result of one column."""
    sums = np.array(
        [found.at_zero, found.objective, found.dual, found.passes, found.converged, found.best_intercept], np.float64
    )
    write_checkpoint(location(path), {}, [("sums", sums), ("history", found.history), ("best", found.best)])


def solve_by_passes(
    client: Client, task: PassProblem, files: Sequence[str], progress: Callable[[int], None] = lambda done: None
) -> None:
    """Solve all columns of a problem, each into its file, in a folder of this problem; a killed run resumes.

    `progress` is called with values up to `SOLVED`. Raises `SparseocoError` if a task failed.
    """
    folder = location(files[0]).parent
    # A run of its own: a task of a client that was killed may still be at work in the folder of another.
    work = folder / f"passes-{uuid.uuid4().hex}"
    state, pool, done = folder / "state.npz", TaskPool(client, FAILURE), 0
    while done < SOLVED:
        done = pool.call(_continue, task, str(work), str(state), list(files))
        progress(done)
    remove_folder(work)
    remove_file(state)


def _continue(task: PassProblem, work: str, checkpoint: str, files: list[str]) -> int:
    """Continue with all columns for `SOLVER_SECONDS`; returns the progress, `SOLVED` once all columns are written."""
    if all(is_complete(location(path)) for path in files):
        return SOLVED
    store, _, class_weights, _ = task.source
    with worker_client() as client:
        passes: Passes = ClusterPasses(
            client,
            open_store(store),
            location(work),
            task.span,
            task.source.weighting,
            class_weights,
            leaf_nonzeros=LEAF_NONZEROS,
        )
        if task.transform is not None:
            passes = task.transform(passes)
        memory = int(worker_shape(client)[1] * SOLVER_SHARE)
        solver = Solver(passes, task.problem, tol=task.tol, max_passes=task.max_passes, memory=memory)
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
        write_column(column, path)
    return SOLVED


def _read_state(path: Location) -> dict[str, NDArray[Any]] | None:
    """The saved state of a run, or None if it is missing or corrupt."""
    with suppress(StorageError), read_checkpoint(path) as (description, read):
        return {name: read(name) for name in description["names"]}
    return None


def _fraction_done(solver: Solver) -> int:
    """Progress to the requested gap on a logarithmic scale, up to `SOLVED`."""
    shares = []
    for column in solver.columns:
        relative = column.gap / column.at_zero if column.at_zero > 0.0 else 1.0
        shares.append(1.0 if column.done else min(1.0, math.log(max(relative, solver.tol)) / math.log(solver.tol)))
    return round(SOLVED * max(0.0, sum(shares) / len(shares)))
