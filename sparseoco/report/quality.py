"""How good the chosen model is: held-out and test metrics side by side, and precision and recall of every class."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from sparseoco.report.formatting import NONE, percent, percent_with_error
from sparseoco.report.predictions import PredictionSet, confusion, positive_index
from sparseoco.report.results import Results
from sparseoco.storage.metric_names import METRICS
from sparseoco.training.metrics.classes import classification_metrics
from sparseoco.training.metrics.scores import baseline

NAMES: Final = {
    "log_loss": "log loss",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "f1": "F1",
    "f1_macro": "F1, macro average",
    "f1_micro": "F1, micro average",
    "f1_weighted": "F1, weighted average",
    "balanced_accuracy": "balanced accuracy",
    "rmse": "RMSE",
    "mae": "mean absolute error",
    "r2": "R²",
}
NUMBERS: Final = {"log_loss", "loss", "rmse", "mae", "r2", "roc_auc", "average_precision"}
"""Metrics that are not written in per cent."""


def metric_name(name: str) -> str:
    """A metric's name for people.

    >>> metric_name("roc_auc"), metric_name("precision_at_recall_90")
    ('ROC AUC', 'precision at recall 90 %')
    """
    if "_at_" in name:
        first, second, level = name.replace("_at_", "_").split("_")
        return f"{first} at {second} {level} %"
    return NAMES.get(name, name)


def metric_value(name: str, value: float | None, error: float | None = None) -> str:
    """A metric's value with its standard error.

    >>> metric_value("error", 0.0123), metric_value("roc_auc", 0.98765, 0.001)
    ('1.2\\xa0%', '0.9877 ± 0.0010')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if name not in NUMBERS:
        return percent_with_error(value, error) if error is not None else percent(value)
    digits = 4 if abs(value) < 10 else 2
    text = f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")
    return text.replace("-", "−")


class MetricRow(NamedTuple):
    """A metric of the chosen model: on held-out folds, on the test set, of a model without features."""

    name: str
    label: str
    held_out: str
    test: str
    baseline: str
    selected: bool
    """Whether the search selected by it."""


def selection_metric(results: Results) -> str:
    """The metric that the search selected by."""
    return str(getattr(results.best, "metric", "error"))


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
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return mean, None
    return mean, math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def test_metric(results: Results, name: str) -> float | None:
    """A metric of the model on the test set."""
    if results.evaluation is None:
        return None
    recorded = results.evaluation.model_dump()
    value = recorded.get(name, (recorded.get("metrics") or {}).get(name))
    return float(value) if isinstance(value, int | float) else None


def metric_rows(results: Results) -> list[MetricRow]:
    """Every metric that was measured on the chosen model, the one it was selected by first."""
    selected, positive = selection_metric(results), positive_index(results)
    sizes = [record.rows for record in results.run.corpus.classes]
    rows = []
    for name in sorted(METRICS, key=lambda name: (name != selected, name != "error")):
        held_out, test = held_out_metric(results, name), test_metric(results, name)
        if name == "loss" or (held_out is None and test is None):
            continue
        rows.append(
            MetricRow(
                name,
                metric_name(name),
                NONE if held_out is None else metric_value(name, *held_out),
                metric_value(name, test),
                metric_value(name, baseline(name, sizes, positive)),
                name == selected,
            )
        )
    return rows


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
    if not found.several:
        described = classification_metrics(found.classes, confusion(found))["classes"]
        return [ClassScores(row["rows"], row["precision"], row["recall"], row["f1"]) for row in described]
    truth, predicted = found.found.labels.astype(bool), found.predicted
    hits, said, rows = ((of).sum(axis=0) for of in (truth & predicted, predicted, truth))
    precision, recall, f1 = (
        np.divide(a, b, out=np.zeros(len(a)), where=b > 0)
        for a, b in ((hits, said), (hits, rows), (2 * hits, said + rows))
    )
    return [
        ClassScores(int(n), float(p), float(r), float(f))
        for n, p, r, f in zip(rows, precision, recall, f1, strict=True)
    ]
