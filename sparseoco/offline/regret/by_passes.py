"""The optima of many rows, by passes of the cluster."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from distributed import Client

from sparseoco.execution.pool import TaskPool
from sparseoco.offline.cluster.pass_tasks import RowsSource
from sparseoco.offline.cluster.solving import FAILURE, PassProblem, SolvedColumn, solve_by_passes
from sparseoco.offline.optimum import Problem
from sparseoco.offline.options import MAX_PASSES
from sparseoco.offline.passes import Passes, Span
from sparseoco.offline.regret.curve import FIRST_EPOCH
from sparseoco.offline.regret.optima import Solution, WeightedPasses, comparator_problem, mean_thresholds
from sparseoco.offline.regret.tasks import Series
from sparseoco.storage.commit import remove_folder
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference


class Stream(NamedTuple):
    """The stream of a learner: a reference to the store, the loss, the class of each output, and the order."""

    store: StoreReference
    loss: str
    positive: tuple[int, ...]
    seed: int
    range_rows: int

    def pass_problem(self, T: int, series: Series, problem: Problem) -> PassProblem:
        """A problem over the first T rounds."""
        span = Span(seed=self.seed, epoch=FIRST_EPOCH, range_rows=self.range_rows, stop=T)
        source = RowsSource(self.store, series.weighting, series.class_weights)
        return PassProblem(source, span, problem, series.tol, MAX_PASSES)


def solve_series(client: Client, folder: Location, stream: Stream, series: Sequence[Series], T: int) -> None:
    """Solve the missing optima of T rounds; those that differ only in λ are solved together.

    Their weightings of counts are equal. `folder` is for files, and used by one run at a time.
    """
    folder = folder.resolve()
    groups: dict[tuple[Any, ...], list[tuple[Location, Series]]] = {}
    for own in series:
        path = own.missing(T)
        if path is not None and own.thresholds is not None:
            _solve_weighted(client, folder / f"solving-{path.stem}", stream, path, own, T)
        elif path is not None:
            groups.setdefault(own.comparator[1:], []).append((path, own))
    outputs = len(stream.positive)
    for group in groups.values():
        first, work = group[0][1], folder / f"solving-{group[0][0].stem}"
        alphas = [own.comparator.alpha(T) for _, own in group]
        problem = comparator_problem(stream.loss, stream.positive, first.comparator, alphas)
        files = [str(work / f"{i}.npz") for i in range(len(problem.columns))]
        solve_by_passes(client, stream.pass_problem(T, first, problem), files)
        for i, (path, own) in enumerate(group):
            TaskPool(client, FAILURE).call(_write_solution, files[i * outputs : (i + 1) * outputs], str(path), own, T)
        remove_folder(work)


def _solve_weighted(client: Client, work: Location, stream: Stream, path: Location, series: Series, T: int) -> None:
    """Solve one optimum with weights in its penalty: every output has passes of its own."""
    outputs, files = len(stream.positive), []
    for output, label in enumerate(stream.positive):
        problem = comparator_problem(stream.loss, [label], series.comparator, [series.comparator.alpha(T)])
        transform = partial(_threshold_passes, series=series, T=T, output=output, outputs=outputs)
        files.append(str(work / f"{output}" / "0.npz"))
        task = stream.pass_problem(T, series, problem)._replace(transform=transform)
        solve_by_passes(client, task, files[-1:])
    TaskPool(client, FAILURE).call(_write_solution, files, str(path), series, T)
    remove_folder(work)


def _threshold_passes(passes: Passes, series: Series, T: int, output: int, outputs: int) -> WeightedPasses:
    """Passes of one output, whose penalty the summed h of a learner weights."""
    h = series.h(T, (passes.shape.n_features, outputs))
    return WeightedPasses(passes, mean_thresholds(h, T)[:, output])


def _write_solution(files: list[str], target: str, series: Series, T: int) -> None:
    """Write the `Solution` of one comparator from the solved columns of its outputs."""
    columns = [SolvedColumn.read(path) for path in files]
    weights = np.stack([column.best for column in columns], axis=1)
    if series.thresholds is not None:
        h = mean_thresholds(series.h(T, (len(weights), len(files))), T)
        weights *= np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)
    objective, gap = sum(column.objective for column in columns), sum(column.gap for column in columns)
    intercepts = np.array([column.intercept for column in columns])
    Solution(weights, objective, gap, intercepts).write(location(target))
