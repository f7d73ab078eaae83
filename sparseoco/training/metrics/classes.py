"""The metrics of an evaluation by class."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.metrics import Row
from sparseoco.training.metrics.scores import majority_error, ratios

NAMES = 5
"""Classes or files that a sentence names."""


def label_set_metrics(classes: Sequence[str], rows: int, counts: NDArray[np.int64], exact: int) -> Row:
    """The share of documents whose label set is not exactly right, and precision, recall and F1 of each class.

    Parameters
    ----------
    rows : number of documents.
    counts : (3, classes) int64: documents with the class, predicted to have it, both.
    exact : documents whose predicted set is the true one.
    """
    return {"rows": rows, "error": 1 - exact / rows, "classes": metrics_by_class(classes, *counts)}


def classification_metrics(classes: Sequence[str], confusion: NDArray[np.int64]) -> Row:
    """Error, error of predicting the majority class, and precision, recall and F1 of each class.

    Parameters
    ----------
    confusion : (classes, classes) int64, rows by true class, then by predicted class.
    """
    rows, support, predicted = confusion.sum(), confusion.sum(axis=1), confusion.sum(axis=0)
    correct = confusion.diagonal()
    return {
        "rows": int(rows),
        "error": float((rows - correct.sum()) / rows),
        "majority_error": majority_error(support.tolist()),
        "classes": metrics_by_class(classes, support, predicted, correct),
        "confusion": confusion.tolist(),
    }


def never_predicted(labels: NDArray[Any], predicted: NDArray[Any]) -> list[int]:
    """The classes that rows have and that are predicted for none; indices (rows,), or booleans (rows, classes)."""
    if labels.ndim == 2:
        return [int(k) for k in np.flatnonzero(labels.any(axis=0) & ~predicted.any(axis=0))]
    return [int(k) for k in np.setdiff1d(labels, predicted)]


def never_predicted_sentence(names: Sequence[str], documents: str) -> str:
    """For people: which classes of documents are predicted for none of them.

    >>> never_predicted_sentence(["spam"], "test documents")
    'class spam is never predicted for the test documents'
    """
    if len(names) == 1:
        return f"class {names[0]} is never predicted for the {documents}"
    return f"{len(names):,} classes are never predicted for the {documents}: {_some(names)}"


def trained_on_sentence(names: Sequence[str]) -> str:
    """For people: which inputs of an evaluation the model has learned documents of.

    >>> trained_on_sentence(["reviews.parquet"])
    'the model was trained on documents of reviews.parquet: the figures are optimistic'
    """
    return f"the model was trained on documents of {_some(names)}: the figures are optimistic"


def _some(names: Sequence[str]) -> str:
    more = "" if len(names) <= NAMES else f", and {len(names) - NAMES:,} more"
    return ", ".join(names[:NAMES]) + more


def metrics_by_class(
    classes: Sequence[str], support: NDArray[np.int64], predicted: NDArray[np.int64], correct: NDArray[np.int64]
) -> list[Row]:
    """Precision, recall and F1 of each class, from its documents, those predicted to have it, and those with both."""
    columns = {
        "name": classes,
        "rows": support.tolist(),
        "precision": ratios(correct, predicted),
        "recall": ratios(correct, support),
        "f1": ratios(2 * correct, support + predicted),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
