"""The metrics of an evaluation by class."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sparseoco.storage.metrics import Row
from sparseoco.training.metrics.scores import majority_error, ratios


def classification_metrics(classes: Sequence[str], confusion: NDArray[np.int64]) -> Row:
    """Error, error of predicting the majority class, and precision, recall and F1 of each class.

    Parameters
    ----------
    confusion : (classes, classes) int64, rows by true class, then by predicted class.
    """
    rows, support, predicted = confusion.sum(), confusion.sum(axis=1), confusion.sum(axis=0)
    correct = confusion.diagonal()
    columns = {
        "name": classes,
        "rows": support.tolist(),
        "precision": ratios(correct, predicted),
        "recall": ratios(correct, support),
        "f1": ratios(2 * correct, support + predicted),
    }
    return {
        "rows": int(rows),
        "error": float((rows - correct.sum()) / rows),
        "majority_error": majority_error(support.tolist()),
        "classes": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "confusion": confusion.tolist(),
    }
