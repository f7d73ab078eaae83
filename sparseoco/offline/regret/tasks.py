"""The tasks of regret: measure a learner's curve, measure its bounds, find the optima of few rows.

Each is a pure function of its description and writes a file.
"""

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from sparseoco import __version__
from sparseoco.execution.reports import task_reporter
from sparseoco.offline.cluster.pass_tasks import read_rows
from sparseoco.offline.passes import Passes
from sparseoco.offline.regret.bound_quantities import measure_bounds
from sparseoco.offline.regret.comparator import Comparator
from sparseoco.offline.regret.curve import FIRST_EPOCH, FirstEpoch, measure
from sparseoco.offline.regret.optima import Solution, find_optima, find_weighted_optimum, local_passes
from sparseoco.offline.regret.rounds import sampled_rounds
from sparseoco.storage.checkpoints import write_array
from sparseoco.storage.commit import commit_json, digest_value
from sparseoco.storage.locations import Location, location
from sparseoco.store.references import StoreReference, open_store
from sparseoco.store.shards import Store
from sparseoco.store.weighting import COUNTS, Weighting
from sparseoco.store.worker import worker_corpus
from sparseoco.training.class_weights import class_weighted
from sparseoco.training.learner import Learner
from sparseoco.training.stream import Order

Floats = NDArray[np.float64]

DTYPE = "float64"  # regret is a small difference of large sums


class Measurement(BaseModel):
    """Everything that determines a curve: a configuration, its stream, and the rounds at which it is measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    manifest: str
    algorithm: str
    parameters: dict[str, Any]
    weighting: Weighting
    loss: str
    penalty: str
    seed: int
    range_rows: int
    marks: tuple[int, ...]
    samples: int
    intercept: bool = False
    class_weights: tuple[float, ...] | None = None
    epochs: int = 1
    """1 for online learners, whose regret is that of the first epoch."""
    sparseoco: str = __version__

    @cached_property
    def digest(self) -> str:
        """Identifies the measurement."""
        return digest_value(self.model_dump(mode="json"))[:32]


class Series(NamedTuple):
    """The optima of one comparator at all its marks."""

    comparator: Comparator
    cells: list[tuple[int, str]]
    """(T, path of the `Solution`) of each mark."""
    thresholds: str | None
    """Path of Σ_{t≤T} h_t (marks, features, outputs), if h weights the penalty."""
    tol: float
    weighting: Weighting = COUNTS
    class_weights: tuple[float, ...] | None = None

    def missing(self, T: int) -> Location | None:
        """The path of the optimum of T rounds if T is a mark and the file is missing."""
        path = next((location(cell) for mark, cell in self.cells if mark == T), None)
        return None if path is None or path.exists() else path

    def h(self, T: int, shape: tuple[int, int]) -> Floats:
        """Σ_{t≤T} h_t."""
        assert self.thresholds is not None
        index = [mark for mark, _ in self.cells].index(T)
        return np.array(read_rows(location(self.thresholds), shape[0] * shape[1])[index].reshape(shape))


def curve_task(description: dict[str, Any], store: StoreReference, cell: str) -> None:
    measurement, path = Measurement.model_validate(description), location(cell)
    if path.exists():
        return
    learner, rounds = _new_learner(measurement, open_store(store), path, objective=True)
    marks, thresholds = [], []
    for mark in measure(learner, rounds, measurement.marks, sampled_rounds(measurement.marks, measurement.samples)):
        marks.append({name: value for name, value in mark._asdict().items() if name != "thresholds"})
        if mark.thresholds is not None:
            thresholds.append(mark.thresholds)
    if thresholds:
        write_array(path.with_suffix(".npy"), np.stack(thresholds))
    diverged = int(learner.diverged[0])
    status, reason = ("diverged", f"diverged at row {diverged:,}") if diverged else ("ok", "")
    commit_json(path, {"measurement": description, "marks": marks, "status": status, "reason": reason})


def optima_task(
    store: StoreReference, loss: str, positive: list[int], seed: int, range_rows: int, description: tuple[Any, ...]
) -> None:
    series = Series(Comparator(*description[0]), *description[1:])
    opened = open_store(store)
    corpus = class_weighted(worker_corpus(opened, series.weighting), series.class_weights)
    report = task_reporter(["optima"])
    for T, _ in series.cells:
        path = series.missing(T)
        if path is None:
            continue
        rows = Order(seed, range_rows).rows(FIRST_EPOCH, opened.n_rows, 0, T)
        passes, seen = local_passes(corpus.gather(rows), opened.n_features, intercept=series.comparator.intercept)
        found = find_optimum(passes, loss, positive, series, T, opened.n_features, seen)
        weights = np.zeros((opened.n_features, len(positive)))
        weights[seen] = found.weights
        found._replace(weights=weights).write(path)
        report(T)


def find_optimum(
    passes: Passes,
    loss: str,
    positive: list[int],
    series: Series,
    T: int,
    n_features: int,
    features: Any = slice(None),
) -> Solution:
    """The optimum of one comparator after T rounds, over all features or those given."""
    if series.thresholds is not None:
        h = series.h(T, (n_features, len(positive)))[features]
        return find_weighted_optimum(passes, loss, positive, series.comparator, series.tol, h)
    return find_optima(passes, loss, positive, [series.comparator], series.tol)[0]


def bound_task(description: dict[str, Any], store: StoreReference, cell: str, optima: list[tuple[int, str]]) -> None:
    measurement, path = Measurement.model_validate(description), location(cell)
    if path.exists():
        return
    learner, rounds = _new_learner(measurement, open_store(store), path, objective=False)
    solutions = {T: Solution.read(location(name)) for T, name in optima}
    comparators = {T: solution.weights for T, solution in solutions.items()}
    intercepts = {T: solution.intercepts for T, solution in solutions.items()}
    samples = sampled_rounds(measurement.marks, measurement.samples)
    bounds = measure_bounds(learner, rounds, samples, comparators, intercepts)
    commit_json(path, {"measurement": description, "bounds": list(bounds)})


def _new_learner(
    measurement: Measurement, store: Store, path: Location, *, objective: bool
) -> tuple[Learner, FirstEpoch]:
    """A new learner of a measurement's configuration, and its stream, which reports under the name of the file."""
    learner = Learner(
        measurement.algorithm,
        loss=measurement.loss,
        penalty=measurement.penalty,
        grid=[measurement.parameters],
        n_features=store.n_features,
        n_classes=store.n_classes,
        multilabel=store.is_multilabel,
        dtype=DTYPE,
        objective=objective,
        intercept=measurement.intercept,
    )
    order = Order(measurement.seed, measurement.range_rows)
    source = class_weighted(worker_corpus(store, measurement.weighting), measurement.class_weights)
    return learner, FirstEpoch(source, order, task_reporter([path.stem]))
