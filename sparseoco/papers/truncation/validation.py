"""The protocols of both papers: ten folds, 20 passes, evaluated on the held-out fold, with λ chosen by one of `RULES`.

2011 chooses one λ "to achieve the highest precision rate" of the ten-fold cross-validation: that of the least mean
error over the ten folds, which are also those it reports. 2012 tunes λ within the nine folds of each training set and
does not say how. Here, for fold f, λ is the one with the best results on folds f − 1 and f + 1, each predicted by
weights trained without it and without f; then all λ are trained on all folds but f. That is 20 trainings per method and
data set, each of all λ together: ten hold out one fold, as a search of the method does, and ten hold out two
neighbours, each of which tunes for both. Within the nine, two rules: the least error, and the sparsest within one
standard error of the least, for the "highly predictable sparse weight vector" of 2012.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sparseoco.core.errors import SparseocoError
from sparseoco.papers.tables import Row
from sparseoco.papers.truncation.trials import Trial, held_out_folds
from sparseoco.search.selection import choose
from sparseoco.training.options.selection import Select

TEN_FOLD: Final = "least error over the ten folds"
LEAST: Final = "least error within nine folds"
SPARSEST: Final = "sparsest within one standard error within nine folds"
RULES: Final = (TEN_FOLD, LEAST, SPARSEST)
_WITHIN: Final[dict[str, Select]] = {LEAST: "best", SPARSEST: "one-standard-error"}

_Tuning = Sequence[tuple[Mapping[str, Any], int]]
"""Results of trainings, each with the index of the fold used among those it holds out."""


def result_rows(trial: Trial, parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, list[Row]]]:
    """For each rule, a row per fold: the tuned λ, its error and sparsity; `parts` are the results of the cells."""
    folds, strengths = trial.folds, trial.method.strengths
    by_held = dict(zip(held_out_folds(folds), parts, strict=True))
    for rule in RULES:
        rows = []
        for fold, k in enumerate(_chosen(trial, by_held, rule)):
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
    """A row per fold and λ: the error on this fold, which is held out, sparsity, and the largest norm in the state."""
    return [
        {
            "fold": fold,
            "lam": lam,
            "error": part["errors"][0][k] / part["rows"][0],
            "sparsity": 1 - part["nonzeros"][k] / trial.weights,
            "norm": part["norms"][k] if part["norms"] else None,
        }
        for fold, part in enumerate(parts[: trial.folds])
        for k, lam in enumerate(trial.method.strengths)
    ]


def _chosen(trial: Trial, by_held: Mapping[tuple[int, ...], Mapping[str, Any]], rule: str) -> list[int]:
    """The number of the λ that a rule chooses for each fold."""
    folds = range(trial.folds)
    if rule == TEN_FOLD:
        singles = [_search_rows(trial, [(by_held[(fold,)], 0)], fold) for fold in folds]
        return [_choose(trial, [row for rows in singles for row in rows], "best")] * len(folds)
    chosen = []
    for fold in folds:
        before, after = (fold - 1) % len(folds), (fold + 1) % len(folds)
        neighbours = [(by_held[before, fold], 0), (by_held[fold, after], 1)]
        chosen.append(_choose(trial, _search_rows(trial, neighbours), _WITHIN[rule]))
    return chosen


def _choose(trial: Trial, rows: Sequence[Row], selection: Select) -> int:
    """The number of the λ that a search would choose by these rows."""
    try:
        return choose(rows, selection).configuration
    except SparseocoError as error:
        raise SparseocoError(f"{trial.method.name} on {trial.name}: {error}", code=error.code) from error


def _search_rows(trial: Trial, tuning: _Tuning, number: int = 0) -> list[Row]:
    """Rows like a search's: each λ on the rows of all these folds, as one fold of this number."""
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
                "fold": number,
                "status": status,
                "reason": "" if status == "ok" else status,
                "held_out_rows": total,
                "held_out_error": wrong / total,
                "nonzeros": sum(part["nonzeros"][k] for part, _ in tuning) / len(tuning),
            }
        )
    return rows
