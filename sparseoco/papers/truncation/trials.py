"""The trainings of both papers: every method on ten times nine of ten folds, and without every two neighbours.

A training is of all λ of a method together, and of methods of the same learner that differ in other values than static
ones: columns are independent, so the bits are the same as if each had been trained alone.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import InputError
from sparseoco.kernels.order import fold_rows, gather
from sparseoco.learners import find_algorithm
from sparseoco.papers.cells import Cell
from sparseoco.papers.documents import Documents
from sparseoco.papers.truncation.methods import TunedMethod, new_learner
from sparseoco.training.learner import Learner
from sparseoco.training.orders import ordered_rows, range_rows_of
from sparseoco.training.sizes import check_size

TOGETHER: Final = 24
"""The most columns of several methods that are trained together: of 400,000 features they are 0.2 GB."""
SHARES: Final = np.linspace(0.0, 1.0, 101)
"""Of the features with a nonzero weight."""


class Trial(NamedTuple):
    """A method on a data set."""

    name: str
    documents: Documents
    method: TunedMethod
    counted: bool = False
    """Whether to count the occurrences of the features with nonzero weights."""

    @property
    def folds(self) -> int:
        """Their number."""
        return self.method.search.folds

    @property
    def weights(self) -> int:
        """Their number per configuration."""
        return len(self.documents.terms) * self._outputs

    @property
    def columns(self) -> int:
        """Those of the learner: one per λ and class, one for two classes."""
        return len(self.method.strengths) * self._outputs

    @property
    def _outputs(self) -> int:
        classes = len(self.documents.classes)
        return 1 if classes == 2 else classes

    @property
    def loop(self) -> tuple[Any, ...]:
        """What trials that are trained together have in common: the documents, all of the search but values of
        parameters that are not static."""
        shared = self.method.search.model_dump_json(exclude={"algorithms"})
        static = find_algorithm(self.method.algorithm).static_values(self.method.configurations[0])
        return self.documents.digest, shared, self.method.algorithm, static

    def key(self, held: Sequence[int]) -> dict[str, Any]:
        """Everything a training depends on."""
        return {
            "documents": self.documents.digest,
            "search": self.method.search.model_dump(mode="json"),
            "held": list(held),
            "counted": self.counted,
            "sparseoco": __version__,
        }

    def fold_rows(self, fold: int) -> NDArray[np.int64]:
        """The rows of a fold, in order."""
        rows: NDArray[np.int64] = fold_rows(self.method.search.seed, 0, len(self.documents.labels), fold, self.folds)
        return rows

    def learned(self, held: Sequence[int]) -> NDArray[np.bool_]:
        """(n,) whether a row is in the training set, if these folds are held out."""
        learned = np.ones(len(self.documents.labels), bool)
        for fold in held:
            learned[self.fold_rows(fold)] = False
        return learned

    def occurrences(self, held: Sequence[int]) -> NDArray[np.int64]:
        """(features,) sums of the counts in the training set, if these folds are held out."""
        counts: NDArray[np.float64] = self.documents.rows.T @ self.learned(held).astype(np.float64)
        return counts.astype(np.int64)


def check_trial(trial: Trial) -> None:
    """Raise `InputError` if a fold has no documents, for they are drawn at random, or the learner's state is too large
    for so many features."""
    if any(len(trial.fold_rows(fold)) == 0 for fold in range(trial.folds)):
        size = len(trial.documents.labels)
        raise InputError(f"{trial.name} has {size} documents: too few for {trial.folds} folds.", code="too-small")
    check_size(trial.method.algorithm, trial.documents.rows.shape[1])


def held_out_folds(folds: int) -> list[tuple[int, ...]]:
    """The folds that each training holds out: every one, and every two neighbours."""
    return [(fold,) for fold in range(folds)] + [(fold, (fold + 1) % folds) for fold in range(folds)]


def groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """The trials in their order, those together that can share a compiled loop, up to `TOGETHER` columns."""
    found: dict[tuple[Any, ...], list[list[Trial]]] = {}
    for trial in trials:
        own = found.setdefault(trial.loop, [[]])
        if own[-1] and sum(other.columns for other in own[-1]) + trial.columns > TOGETHER:
            own.append([])
        own[-1].append(trial)
    return [group for own in found.values() for group in own]


def group_cells(group: Sequence[Trial]) -> list[Cell]:
    """The trainings of a group, in the order of `held_out_folds`; each gives a result per trial."""
    return [
        Cell({"trials": [trial.key(held) for trial in group]}, partial(_run, group, held))
        for held in held_out_folds(group[0].folds)
    ]


def learn(trial: Trial, grid: list[dict[str, Any]], held: Sequence[int]) -> Learner:
    """Train configurations of the method on all folds but these; with one held out, on the rows and in the order of
    the search."""
    rows, labels = trial.documents.rows, trial.documents.labels
    search = trial.method.search
    learner = new_learner(trial.method, rows.shape[1], len(trial.documents.classes), grid)
    learned = trial.learned(held)
    range_rows = range_rows_of(search.shuffle, len(labels), len(rows.indices))
    for epoch in range(1, search.epochs + 1):
        order = ordered_rows(search.seed, epoch, range_rows, len(labels), 0, len(labels), -1, search.folds)
        learner.learn_rows(*gather(order[learned[order]], rows.indptr, rows.indices, rows.data, labels))
    return learner


def _run(group: Sequence[Trial], held: tuple[int, ...]) -> list[dict[str, Any]]:
    """For each trial, per λ: errors on each held-out fold with its number of rows, and nonzero weights.

    With one fold held out also the largest norm r of a coordinate, of learners that have it, and, if asked, the
    occurrences in the training set of the features with a nonzero weight, at `SHARES` of them from the rarest.
    """
    begun = thread_time()
    first = group[0]
    learner = learn(first, [values for trial in group for values in trial.method.configurations], held)
    rows, labels = first.documents.rows, first.documents.labels
    folds = [first.fold_rows(fold) for fold in held]
    errors = [learner.evaluate(*gather(own, rows.indptr, rows.indices, rows.data, labels))[1] for own in folds]
    nonzeros, diverged = learner.nonzeros(), learner.diverged
    results: list[dict[str, Any]] = []
    start = 0
    for trial in group:
        numbers = range(start, start + len(trial.method.strengths))
        start = numbers.stop
        part = slice(numbers.start, numbers.stop)
        results.append(
            {
                "errors": [wrong[part].tolist() for wrong in errors],
                "rows": [len(own) for own in folds],
                "nonzeros": nonzeros[part].tolist(),
                "diverged": diverged[part].tolist(),
                "norms": _norms(learner, numbers) if len(held) == 1 else [],
                "occurrences": _occurrences(trial, learner, numbers, held) if trial.counted and len(held) == 1 else [],
            }
        )
    seconds = (thread_time() - begun) / start
    return [result | {"seconds": seconds * len(result["nonzeros"])} for result in results]


def _norms(learner: Learner, numbers: Sequence[int]) -> list[float]:
    """The largest norm r of any coordinate, per configuration; empty for learners without it."""
    states = [learner.slots_of(number) for number in numbers]
    return [float(state["r"].max()) for state in states if "r" in state]


def _occurrences(trial: Trial, learner: Learner, numbers: Sequence[int], held: Sequence[int]) -> list[list[int]]:
    """Per configuration of two classes, numbers of occurrences; none if all weights are 0."""
    counts = trial.occurrences(held)
    order = np.argsort(counts, kind="stable")
    counts, weights = counts[order], learner.weights(np.array(numbers))
    selected = [counts[own] for own in (weights != 0)[order].T]
    return [own[np.round(SHARES * (len(own) - 1)).astype(np.int64)].tolist() if len(own) else [] for own in selected]
