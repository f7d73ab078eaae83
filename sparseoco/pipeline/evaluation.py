"""Evaluation of a saved model on labelled text."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.text.readers import read_documents
from sparseoco.training.model import Model


def evaluate_model(
    model: Model, inputs: Sequence[str], where: dict[str, str], progress: ProgressCallback
) -> dict[str, Any]:
    """Compare a model's predictions with the labels of text.

    Parameters
    ----------
    inputs : sequence of str
        Files, folders or URIs, read with the options of the model's own text.
    where : dict
        Values of fields that documents must have.

    Returns
    -------
    dict
        The error, the error of predicting the majority class, the confusion matrix (rows are true classes), and
        precision, recall and F1 of each class, as written to ``evaluation.json``.

    Raises
    ------
    InputError
        If there are no documents, or more malformed rows than allowed, such as labels that are not classes of the
        model.
    """
    if not model.classes:
        raise InputError(f"{model.folder} predicts numbers: evaluation compares classes.", code="invalid-labels")
    options = model.text.model_copy(update={"where": where}).with_classes(model.classes)
    number = {name: i for i, name in enumerate(model.classes)}
    n_classes = len(model.classes)
    confusion = np.zeros((n_classes, n_classes), np.int64)
    for batch in read_documents(inputs, options):
        labels: Any = batch.labels
        if labels is None:
            raise InputError("Plain lines of text have no labels: evaluate needs labelled documents.", code="no-labels")
        truth = [number[label] for label in labels.to_pylist()]
        predicted = [number[label] for label in model.predict(batch)]
        np.add.at(confusion, (truth, predicted), 1)
        progress("evaluate", int(confusion.sum()), 0)
    if not confusion.any():
        raise InputError("No documents to evaluate: check the inputs and --where.", code="no-documents")
    return _metrics(model.classes, confusion) | {"inputs": list(inputs), "where": where}


def _metrics(classes: Sequence[str], confusion: NDArray[np.int64]) -> dict[str, Any]:
    rows, support, correct = confusion.sum(), confusion.sum(axis=1), confusion.diagonal()
    predicted = confusion.sum(axis=0)
    columns = {
        "name": classes,
        "rows": support.tolist(),
        "precision": _ratio(correct, predicted),
        "recall": _ratio(correct, support),
        "f1": _ratio(2 * correct, support + predicted),
    }
    return {
        "rows": int(rows),
        "error": float((rows - correct.sum()) / rows),
        "majority_error": 1 - float(support.max() / rows),
        "classes": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "confusion": confusion.tolist(),
    }


def _ratio(part: NDArray[np.int64], whole: NDArray[np.int64]) -> list[float]:
    """part / whole, 0 where whole is 0."""
    ratios: list[float] = np.divide(part, whole, out=np.zeros(len(part)), where=whole != 0).tolist()
    return ratios
