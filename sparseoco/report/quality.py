"""How good the chosen model is: held-out and test metrics side by side, and precision and recall of every class."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.formatting import NONE, metric_name, metric_with_error
from sparseoco.report.predictions import PredictionSet, confusion, positive_index
from sparseoco.report.results import Results
from sparseoco.search.selection import mean_error
from sparseoco.storage.metric_names import METRICS
from sparseoco.training.metrics.classes import classification_metrics, metrics_by_class
from sparseoco.training.metrics.scores import baseline, count_metrics, label_kind, majority_error


class MetricRow(NamedTuple):
    """A metric of the chosen model: on held-out folds, on the test set, of a model without features."""

    name: str
    label: str
    held_out: str
    test: str
    baseline: str
    selected: bool
    """Whether the search selected by it."""


def held_out_metric(results: Results, name: str) -> tuple[float, float | None] | None:
    """A metric of the chosen configuration at its epoch: the mean over folds and its standard error."""
    column = f"held_out_{name}"
    if results.best is None or column not in results.metrics.column_names:
        return None
    chosen = results.best.configuration, results.best.epochs
    rows = results.metrics.select(["configuration", "epoch", column]).to_pylist()
    values = [row[column] for row in rows if (row["configuration"], row["epoch"]) == chosen]
    if not values or any(value is None or not math.isfinite(value) for value in values):
        return None
    return math.fsum(values) / len(values), mean_error(values) if len(values) > 1 else None


def at_threshold(sets: Sequence[PredictionSet]) -> dict[str, tuple[float, float | None]]:
    """The metrics of the held-out predictions at the model's threshold, as `held_out_metric`: error, F1 and others.

    Empty if the threshold is 0, at which the search has measured them.
    """
    found = sets[0] if sets else None
    if found is None or found.found.folds is None or not found.cut.any():
        return {}
    rows = [_fold_metrics(found, found.found.folds == fold) for fold in np.unique(found.found.folds)]
    measured = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        name: (math.fsum(values) / len(values), mean_error(values) if len(values) > 1 else None)
        for name, values in measured.items()
    }


def _fold_metrics(found: PredictionSet, rows: NDArray[np.bool_]) -> dict[str, Any]:
    truth, predicted = found.found.labels[rows], found.predicted[rows]
    error = float((truth != predicted).any(axis=1).mean()) if found.several else None
    if not found.several:
        truth, predicted = (of[:, None] == np.arange(len(found.classes)) for of in (truth, predicted))
    counts = np.stack([of.sum(axis=0) for of in (truth, predicted, truth & predicted)])
    kind = label_kind(len(found.classes), label_sets=found.several)
    return count_metrics(counts, kind, found.positive, error=error)


def baseline_error(results: Results) -> float | None:
    """Error of always predicting the largest class of the corpus, or no label; None if it is not known."""
    if results.several:
        found = held_out_metric(results, "majority_error")
        return None if found is None else found[0]
    rows = [record.rows for record in results.run.corpus.classes]
    return majority_error(rows) if sum(rows) else None


def test_metric(results: Results, name: str) -> float | None:
    """A metric of the model on the test set."""
    if results.evaluation is None:
        return None
    recorded = results.evaluation.model_dump()
    value = recorded.get(name, (recorded.get("metrics") or {}).get(name))
    return float(value) if isinstance(value, int | float) else None


def metric_rows(results: Results, sets: Sequence[PredictionSet] = ()) -> list[MetricRow]:
    """Every metric that was measured on the chosen model, the one it was selected by first; at its threshold."""
    selected, positive = results.metric, positive_index(results)
    sizes = [record.rows for record in results.run.corpus.classes]
    rows, thresholded = [], at_threshold(sets)
    for name in sorted(METRICS, key=lambda name: (name != selected, name != "error")):
        held_out, test = thresholded.get(name) or held_out_metric(results, name), test_metric(results, name)
        if name == "loss" or (held_out is None and test is None):
            continue
        rows.append(
            MetricRow(
                name,
                metric_name(name),
                NONE if held_out is None else metric_with_error(name, *held_out),
                metric_with_error(name, test, None),
                metric_with_error(name, _baseline(results, name, sizes, positive), None),
                name == selected,
            )
        )
    return rows


def _baseline(results: Results, name: str, sizes: Sequence[int], positive: int) -> float | None:
    """A metric of a model without features, which predicts the largest class, or of several labels none."""
    if not results.several:
        return baseline(name, sizes, positive)
    if name == "error":
        return baseline_error(results)
    return {"roc_auc": 0.5, "f1_macro": 0.0, "f1_micro": 0.0, "f1_weighted": 0.0}.get(name)


class ClassScores(NamedTuple):
    """Documents, precision, recall and F1 of a class on one set."""

    rows: int
    precision: float
    recall: float
    f1: float


class ClassQuality(NamedTuple):
    """A class on each set of documents."""

    name: str
    scores: list[ClassScores]


def class_table(results: Results, sets: Sequence[PredictionSet]) -> tuple[list[str], list[ClassQuality]]:
    """The names of the sets, the test set first, and their scores of every class."""
    columns: list[tuple[str, list[ClassScores]]] = []
    if results.evaluation is not None:
        own = results.evaluation.classes
        columns.append(("test", [ClassScores(_rows(of), of.precision, of.recall, of.f1) for of in own]))
    for found in sets:
        if found.classes and found.name not in dict(columns):
            columns.append((found.name, _class_scores(found)))
    names = [record.name for record in results.run.corpus.classes]
    complete = [(name, scores) for name, scores in columns if len(scores) == len(names)]
    table = [ClassQuality(name, [scores[k] for _, scores in complete]) for k, name in enumerate(names)]
    return [name for name, _ in complete], table if complete else []


def _rows(of: object) -> int:
    return int(getattr(of, "rows", 0))


def _class_scores(found: PredictionSet) -> list[ClassScores]:
    if found.several:
        truth, predicted = found.found.labels.astype(bool), found.predicted
        described = metrics_by_class(found.classes, *(of.sum(axis=0) for of in (truth, predicted, truth & predicted)))
    else:
        described = classification_metrics(found.classes, confusion(found))["classes"]
    return [ClassScores(row["rows"], row["precision"], row["recall"], row["f1"]) for row in described]
