"""The protocol of both papers: ten folds, λ tuned within the other nine, 20 passes, then the fold that was left out.

For fold f: λ is the one that does best on folds f − 1 and f + 1, each predicted by weights that saw neither it nor f;
then all λ are learned on all folds but f. So 20 trainings a method and set, all λ of one side by side: the ten that
hold out one fold, and the ten that hold out two neighbours, each of which tunes for both. The papers do not say how λ
is tuned within the nine.

Two rules of choice: the least error, which is that of 2011 ("to achieve the highest precision rate"), and the sparsest
within one standard error of the least, for the "highly predictable sparse weight vector" of 2012.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import thread_time
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco import __version__
from sparseoco.drivers.order import epoch_rows, fold_rows, gather
from sparseoco.errors import InputError
from sparseoco.learner import Learner
from sparseoco.reproduce.cells import Cell
from sparseoco.reproduce.records import Row
from sparseoco.reproduce.truncation.documents import SEED, Documents
from sparseoco.reproduce.truncation.published import Method
from sparseoco.selection import choose

FOLDS: Final = 10
PASSES: Final = 20
STRENGTHS: Final = 12
RULES: Final = ("least error", "sparsest within one standard error")
_CHOICE: Final = {RULES[0]: "error", RULES[1]: "one-standard-error"}


class Trial(NamedTuple):
    """A method on a set, and how long it is learned; tests take fewer passes."""

    name: str
    documents: Documents
    method: Method
    passes: int


def check_folds(name: str, documents: Documents) -> None:
    """Raises `InputError` where a fold has no documents: folds are drawn document by document."""
    n_rows = len(documents.labels)
    if any(len(_rows_of(fold, n_rows)) == 0 for fold in range(FOLDS)):
        raise InputError(f"{name} has {n_rows} documents here: too few for {FOLDS} folds.")


def strengths(method: Method) -> list[float]:
    """λ: 10^lowest and eleven more, three a decade, to three figures."""
    return [float(f"{10 ** (method.lowest + k / 3):.3g}") for k in range(STRENGTHS)]


def held_out() -> list[tuple[int, ...]]:
    """The folds that each training holds out: every one, every two neighbours."""
    return [(fold,) for fold in range(FOLDS)] + [(fold, (fold + 1) % FOLDS) for fold in range(FOLDS)]


def cells_of(trial: Trial) -> list[Cell]:
    """The trainings of a trial, in the order of `held_out`."""
    key = {
        "documents": trial.documents.digest,
        "algorithm": trial.method.algorithm,
        "grid": _grid(trial.method),
        "passes": trial.passes,
        "seed": SEED,
        "sparseoco": __version__,
    }
    return [Cell(key | {"held": list(held)}, partial(_found, trial, held)) for held in held_out()]


def learn(trial: Trial, grid: Sequence[Mapping[str, Any]], held: Sequence[int]) -> Learner:
    """Configurations of a trial's method learned on all folds but these, in a new order every pass."""
    rows, labels = trial.documents.rows, trial.documents.labels
    classes = len(trial.documents.classes)
    learner = Learner(
        trial.method.algorithm,
        loss="hinge" if classes == 2 else "multiclass_hinge",
        grid=[dict(configuration) for configuration in grid],
        n_features=rows.shape[1],
        n_classes=classes,
    )
    learned = np.ones(len(labels), bool)
    for fold in held:
        learned[_rows_of(fold, len(labels))] = False
    for epoch in range(1, trial.passes + 1):
        order = epoch_rows(SEED, epoch, True, len(labels), 0, len(labels), -1, FOLDS)
        learner.learn_rows(*gather(order[learned[order]], rows.indptr, rows.indices, rows.data, labels))
    return learner


def results(trial: Trial, found: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """For each rule, a row a fold: λ as tuned, and error and sparseness on the fold; `found` is what the cells gave."""
    parts = dict(zip(held_out(), found, strict=True))
    weights = trial.documents.rows.shape[1] * outputs(trial.documents)
    for rule, choice in _CHOICE.items():
        rows = []
        for fold in range(FOLDS):
            before, after = (fold - 1) % FOLDS, (fold + 1) % FOLDS
            tuning = [(parts[before, fold], 0), (parts[fold, after], 1)]
            k = choose(_tried(trial, tuning), choice).configuration
            own = parts[(fold,)]
            rows.append(
                {
                    "fold": fold,
                    "lam": strengths(trial.method)[k],
                    "rows": own["rows"][0],
                    "errors": own["errors"][0][k],
                    "error": own["errors"][0][k] / own["rows"][0],
                    "sparseness": 1 - own["nonzeros"][k] / weights,
                }
            )
        yield rule, rows


def path(trial: Trial, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """A row a λ: mean and deviation over the folds, each left out in turn."""
    singles = [part for held, part in zip(held_out(), found, strict=True) if len(held) == 1]
    weights = trial.documents.rows.shape[1] * outputs(trial.documents)
    error = np.array([np.array(part["errors"][0]) / part["rows"][0] for part in singles])
    zeros = np.array([1 - np.array(part["nonzeros"]) / weights for part in singles])
    return [
        {
            "lam": lam,
            "error": float(error[:, k].mean()),
            "deviation": float(error[:, k].std(ddof=1)),
            "sparseness": float(zeros[:, k].mean()),
        }
        for k, lam in enumerate(strengths(trial.method))
    ]


def outputs(documents: Documents) -> int:
    """Weights a feature."""
    return 1 if len(documents.classes) == 2 else len(documents.classes)


def training_counts(documents: Documents, held: Sequence[int]) -> NDArray[np.float64]:
    """(n_features,) how often every term occurs in the rows that are learned."""
    learned = np.ones(len(documents.labels), bool)
    for fold in held:
        learned[_rows_of(fold, len(documents.labels))] = False
    return np.asarray(documents.rows[learned].sum(axis=0)).ravel()


def _grid(method: Method) -> list[dict[str, Any]]:
    return [dict(method.parameters) | {"lam": lam} for lam in strengths(method)]


def _rows_of(fold: int, n_rows: int) -> NDArray[np.int64]:
    rows: NDArray[np.int64] = fold_rows(SEED, 0, n_rows, fold, FOLDS)
    return rows


def _found(trial: Trial, held: tuple[int, ...]) -> dict[str, Any]:
    """Per λ: errors and rows of each fold held out, and nonzero weights."""
    begun = thread_time()
    learner = learn(trial, _grid(trial.method), held)
    rows, labels = trial.documents.rows, trial.documents.labels
    errors, sizes = [], []
    for fold in held:
        own = _rows_of(fold, len(labels))
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


def _tried(trial: Trial, tuning: Sequence[tuple[Mapping[str, Any], int]]) -> list[Row]:
    """Rows as a search's, for its rules: each λ on the rows of both folds that it is tuned by."""
    rows = []
    total = sum(part["rows"][place] for part, place in tuning)
    for k, lam in enumerate(strengths(trial.method)):
        wrong = sum(part["errors"][place][k] for part, place in tuning)
        broken = any(part["diverged"][k] for part, _ in tuning)
        rows.append(
            {
                "configuration": k,
                "algorithm": trial.method.algorithm,
                "parameters": json.dumps(dict(trial.method.parameters) | {"lam": lam}, sort_keys=True),
                "epoch": trial.passes,
                "fold": 0,
                "status": "diverged" if broken else "ok",
                "reason": "diverged" if broken else "",
                "held_out_rows": total,
                "held_out_error": wrong / total,
                "nonzeros": sum(part["nonzeros"][k] for part, _ in tuning) / len(tuning),
            }
        )
    return rows
