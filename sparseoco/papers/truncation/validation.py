"""The protocol of both papers: λ tuned within nine of ten folds, 20 passes, then the fold that was left out.

For fold f: λ is the one that does best on folds f − 1 and f + 1, each predicted by weights that saw neither it nor f;
then all λ are learned on all folds but f. So 20 trainings a method and set, all λ of one side by side: the ten that
hold out one fold, which are what a search of the method runs, and the ten that hold out two neighbours, each of which
tunes for both. The papers do not say how λ is tuned within the nine.

Two rules of choice: the least error, which is that of 2011 ("to achieve the highest precision rate"), and the sparsest
within one standard error of the least, for the "highly predictable sparse weight vector" of 2012.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.core.errors import InputError, SparseocoError
from sparseoco.kernels.order import epoch_rows, fold_rows, gather
from sparseoco.papers.cells import Cell
from sparseoco.papers.records import Row
from sparseoco.papers.truncation.documents import Documents
from sparseoco.papers.truncation.methods import Method, learner_of
from sparseoco.search.selection import choose
from sparseoco.training.learner import Learner
from sparseoco.training.sizes import check_size

RULES: Final = ("least error", "sparsest within one standard error")
_CHOICE: Final = {RULES[0]: "error", RULES[1]: "one-standard-error"}


class Trial(NamedTuple):
    """A method on a set."""

    name: str
    documents: Documents
    method: Method

    @property
    def folds(self) -> int:
        """How many there are."""
        return self.method.search.folds

    @property
    def weights(self) -> int:
        """How many a configuration has."""
        classes = len(self.documents.classes)
        return len(self.documents.terms) * (1 if classes == 2 else classes)

    def key(self, held: Sequence[int]) -> dict[str, Any]:
        """All that a training depends on."""
        return {
            "documents": self.documents.digest,
            "search": self.method.search.model_dump(mode="json"),
            "held": list(held),
            "sparseoco": __version__,
        }

    def rows_of(self, fold: int) -> NDArray[np.int64]:
        """A fold's rows, in their order."""
        rows: NDArray[np.int64] = fold_rows(self.method.search.seed, 0, len(self.documents.labels), fold, self.folds)
        return rows

    def learned(self, held: Sequence[int]) -> NDArray[np.bool_]:
        """(n,) whether a row is learned, by the folds that are held out."""
        learned = np.ones(len(self.documents.labels), bool)
        for fold in held:
            learned[self.rows_of(fold)] = False
        return learned


def check(trial: Trial) -> None:
    """Raises `InputError` where a fold has no documents, for they are drawn document by document, and where a learner
    keeps too much of so many features."""
    if any(len(trial.rows_of(fold)) == 0 for fold in range(trial.folds)):
        size = len(trial.documents.labels)
        raise InputError(f"{trial.name} has {size} documents here: too few for {trial.folds} folds.")
    check_size(trial.method.algorithm, trial.documents.rows.shape[1])


def held_out(folds: int) -> list[tuple[int, ...]]:
    """The folds that each training holds out: every one, every two neighbours."""
    return [(fold,) for fold in range(folds)] + [(fold, (fold + 1) % folds) for fold in range(folds)]


def cells_of(trial: Trial) -> list[Cell]:
    """The trainings of a trial, in the order of `held_out`."""
    return [Cell(trial.key(held), partial(_found, trial, held)) for held in held_out(trial.folds)]


def learn(trial: Trial, grid: list[dict[str, Any]], held: Sequence[int]) -> Learner:
    """Configurations of a trial's method learned on all folds but these: the rows, in the order, that the search has
    them in, where one is held out."""
    rows, labels = trial.documents.rows, trial.documents.labels
    search = trial.method.search
    learner = learner_of(trial.method, rows.shape[1], len(trial.documents.classes), grid)
    learned = trial.learned(held)
    for epoch in range(1, search.epochs + 1):
        order = epoch_rows(search.seed, epoch, search.shuffle, len(labels), 0, len(labels), -1, search.folds)
        learner.learn_rows(*gather(order[learned[order]], rows.indptr, rows.indices, rows.data, labels))
    return learner


def results(trial: Trial, found: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """For each rule, a row a fold: λ as tuned, and error and sparseness on the fold; `found` is what the cells gave."""
    folds, strengths = trial.folds, trial.method.strengths
    parts = dict(zip(held_out(folds), found, strict=True))
    for rule, choice in _CHOICE.items():
        rows = []
        for fold in range(folds):
            before, after = (fold - 1) % folds, (fold + 1) % folds
            tuning = [(parts[before, fold], 0), (parts[fold, after], 1)]
            k = _chosen(trial, tuning, choice)
            own = parts[(fold,)]
            rows.append(
                {
                    "fold": fold,
                    "lam": strengths[k],
                    "rows": own["rows"][0],
                    "errors": own["errors"][0][k],
                    "error": own["errors"][0][k] / own["rows"][0],
                    "sparseness": 1 - own["nonzeros"][k] / trial.weights,
                }
            )
        yield rule, rows


def path(trial: Trial, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row a λ: mean and deviation over the folds, each left out in turn."""
    singles = [part for held, part in zip(held_out(trial.folds), found, strict=True) if len(held) == 1]
    error = np.array([np.array(part["errors"][0]) / part["rows"][0] for part in singles])
    zeros = np.array([1 - np.array(part["nonzeros"]) / trial.weights for part in singles])
    return [
        {
            "lam": lam,
            "error": float(error[:, k].mean()),
            "deviation": float(error[:, k].std(ddof=1)),
            "sparseness": float(zeros[:, k].mean()),
        }
        for k, lam in enumerate(trial.method.strengths)
    ]


def _found(trial: Trial, held: tuple[int, ...]) -> dict[str, Any]:
    """Per λ: errors and rows of each fold held out, and nonzero weights."""
    begun = thread_time()
    learner = learn(trial, trial.method.configurations, held)
    rows, labels = trial.documents.rows, trial.documents.labels
    errors, sizes = [], []
    for fold in held:
        own = trial.rows_of(fold)
        _, wrong = learner.evaluate(*gather(own, rows.indptr, rows.indices, rows.data, labels))
        errors.append(wrong.tolist())
        sizes.append(len(own))
    return {
        "errors": errors,
        "rows": sizes,
        "nonzeros": learner.nonzeros().tolist(),
        "diverged": learner.diverged.tolist(),
        "seconds": thread_time() - begun,
    }


def _chosen(trial: Trial, tuning: Sequence[tuple[Mapping[str, Any], int]], choice: str) -> int:
    """The λ, by its place, that a search would choose of what is known of both folds that it is tuned by."""
    try:
        return choose(_tried(trial, tuning), choice).configuration
    except SparseocoError as error:
        raise SparseocoError(f"{trial.method.name} on {trial.name}: {error}") from error


def _tried(trial: Trial, tuning: Sequence[tuple[Mapping[str, Any], int]]) -> list[Row]:
    """Rows as a search's, for its rules: each λ on the rows of both folds that it is tuned by."""
    rows = []
    total = sum(part["rows"][place] for part, place in tuning)
    for configuration in trial.method.search.configurations():
        k = configuration.number
        wrong = sum(part["errors"][place][k] for part, place in tuning)
        broken = any(part["diverged"][k] for part, _ in tuning)
        rows.append(
            {
                "configuration": k,
                "algorithm": configuration.algorithm,
                "parameters": configuration.parameters_json,
                "epoch": trial.method.search.epochs,
                "fold": 0,
                "status": "diverged" if broken else "ok",
                "reason": "diverged" if broken else "",
                "held_out_rows": total,
                "held_out_error": wrong / total,
                "nonzeros": sum(part["nonzeros"][k] for part, _ in tuning) / len(tuning),
            }
        )
    return rows
