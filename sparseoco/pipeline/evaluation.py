"""Evaluation of a saved model on labelled text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sparseoco.core.errors import InputError
from sparseoco.core.progress import ProgressCallback
from sparseoco.text.readers import read_documents
from sparseoco.training.metrics.classes import classification_metrics
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
    confusion = np.zeros((len(number), len(number)), np.int64)
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
    return classification_metrics(model.classes, confusion) | {"inputs": list(inputs), "where": where}
