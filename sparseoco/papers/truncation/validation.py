"""The protocol of both papers: λ tuned within nine of ten folds, 20 passes, evaluated on the held-out fold.

For fold f, λ is the one with the best results on folds f − 1 and f + 1, each predicted by weights trained without it
and without f; then all λ are trained on all folds but f. That is 20 trainings per method and data set, each of all λ
together: ten hold out one fold, as a search of the method does, and ten hold out two neighbours, each of which tunes
for both. The papers do not say how λ is tuned within the nine.

Two rules of choice: the least error, that of 2011 ("to achieve the highest precision rate"), and the sparsest within
one standard error of the least, for the "highly predictable sparse weight vector" of 2012.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.kernels.order import fold_rows, gather
from sparseoco.papers.cells import Cell
from sparseoco.papers.documents import Documents
from sparseoco.papers.tables import Row
from sparseoco.papers.truncation.methods import TunedMethod, new_learner
from sparseoco.search.selection import choose
from sparseoco.training.learner import Learner
from sparseoco.training.options.selection import Select
from sparseoco.training.orders import ordered_rows, range_rows_of
from sparseoco.training.sizes import check_size

RULES: Final = ("least error", "sparsest within one standard error")
_SELECTION: Final[dict[str, Select]] = {RULES[0]: "best", RULES[1]: "one-standard-error"}

_Tuning = Sequence[tuple[Mapping[str, Any], int]]
"""Results of trainings that hold out two folds, each with the index of the fold used."""


class Trial(NamedTuple):
    """A method on a data set."""

    name: str
    documents: Documents
    method: TunedMethod

    @property
    def folds(self) -> int:
        """Their number."""
        return self.method.search.folds

    @property
    def weights(self) -> int:
        """Their number per configuration."""
        classes = len(self.documents.classes)
        return len(self.documents.terms) * (1 if classes == 2 else classes)

    def key(self, held: Sequence[int]) -> dict[str, Any]:
        """Everything a training depends on."""
        return {
            "documents": self.documents.digest,
            "search": self.method.search.model_dump(mode="json"),
            "held": list(held),
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


def trial_cells(trial: Trial) -> list[Cell]:
    """The trainings of a trial, in the order of `held_out_folds`."""
    return [Cell(trial.key(held), partial(_run, trial, held)) for held in held_out_folds(trial.folds)]


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


def result_rows(trial: Trial, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """For each rule, a row per fold: the tuned λ, its error and sparsity; `parts` are the results of the cells."""
    folds, strengths = trial.folds, trial.method.strengths
    by_held = dict(zip(held_out_folds(folds), parts, strict=True))
    for rule, selection in _SELECTION.items():
        rows = []
        for fold in range(folds):
            before, after = (fold - 1) % folds, (fold + 1) % folds
            k = _choose(trial, [(by_held[before, fold], 0), (by_held[fold, after], 1)], selection)
            own = by_held[(fold,)]
            errors, n_rows = own["errors"][0][k], own["rows"][0]
            rows.append(
                {
                    "fold": fold,
                    "lam": strengths[k],
                    "rows": n_rows,
                    "errors": errors,
                    "error": errors / n_rows,
                    "sparsity": 1 - own["nonzeros"][k] / trial.weights,
                }
            )
        yield rule, rows


def path_rows(trial: Trial, parts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row per λ: mean and deviation over the folds, each held out in turn."""
    singles = parts[: trial.folds]
    error = np.array([np.array(part["errors"][0]) / part["rows"][0] for part in singles])
    zeros = np.array([1 - np.array(part["nonzeros"]) / trial.weights for part in singles])
    return [
        {
            "lam": lam,
            "error": float(error[:, k].mean()),
            "deviation": float(error[:, k].std(ddof=1)),
            "sparsity": float(zeros[:, k].mean()),
        }
        for k, lam in enumerate(trial.method.strengths)
    ]


def _run(trial: Trial, held: tuple[int, ...]) -> dict[str, Any]:
    """Per λ: errors on each held-out fold with its number of rows, and nonzero weights."""
    begun = thread_time()
    learner = learn(trial, trial.method.configurations, held)
    rows, labels = trial.documents.rows, trial.documents.labels
    folds = [trial.fold_rows(fold) for fold in held]
    errors = [learner.evaluate(*gather(own, rows.indptr, rows.indices, rows.data, labels))[1] for own in folds]
    return {
        "errors": [wrong.tolist() for wrong in errors],
        "rows": [len(own) for own in folds],
        "nonzeros": learner.nonzeros().tolist(),
        "diverged": learner.diverged.tolist(),
        "seconds": thread_time() - begun,
    }


def _choose(trial: Trial, tuning: _Tuning, selection: Select) -> int:
    """The number of the λ that a search would choose by the results on both tuning folds."""
    try:
        return choose(_search_rows(trial, tuning), selection).configuration
    except SparseocoError as error:
        raise SparseocoError(f"{trial.method.name} on {trial.name}: {error}", code=error.code) from error


def _search_rows(trial: Trial, tuning: _Tuning) -> list[Row]:
    """Rows like a search's: each λ on the rows of both tuning folds."""
    rows = []
    total = sum(part["rows"][fold] for part, fold in tuning)
    for configuration in trial.method.search.configurations():
        k = configuration.number
        wrong = sum(part["errors"][fold][k] for part, fold in tuning)
        status = "diverged" if any(part["diverged"][k] for part, _ in tuning) else "ok"
        rows.append(
            {
                "configuration": k,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                "epoch": trial.method.search.epochs,
                "fold": 0,
                "status": status,
                "reason": "" if status == "ok" else status,
                "held_out_rows": total,
                "held_out_error": wrong / total,
                "nonzeros": sum(part["nonzeros"][k] for part, _ in tuning) / len(tuning),
            }
        )
    return rows
